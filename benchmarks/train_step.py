"""What does a training step of each task and attention cost, and an evaluation, on this machine?

    python -m benchmarks.train_step --tasks=listops --attentions=all --seeds=1,3
    python -m benchmarks.train_step --tasks=all --dtype=bfloat16 --out=results/train_step.jsonl

The real step of the real protocol (batch, length, dropout, optimizer) through `lra.trainer`, on
random tokens of the task's length. Each case runs in a process of its own, so that peak memory is
its own. Printed, per case: seconds to compile, steps/s and examples/s (summed over seeds; median
of the calls that fit in --seconds), evaluated examples/s, peak memory, the hours that the
protocol's training and evaluations take at that speed, and the model's utilisation: the matrix
products of its forward pass, three times (forward and backward, nothing recomputed), as a share
of the rate of a large matrix product measured in the same process.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from configs.default import ATTENTIONS
from lra.command_line import ArgumentParser, near_match, run
from lra.errors import UserError

# Longest sequence, training, validation and test examples of the official data (LRA).
SIZES = {
    "listops": (2000, 96_000, 2_000, 2_000),
    "text": (4096, 25_000, 25_000, 25_000),
    "retrieval": (4000, 147_086, 18_090, 17_437),
    "image": (1024, 45_000, 5_000, 10_000),
    "pathfinder": (1024, 160_000, 20_000, 20_000),
    "pathx": (16_384, 160_000, 20_000, 20_000),
}
TABLE = ("listops", "text", "retrieval", "image", "pathfinder")


def main(argv: list[str]) -> int:
    """Measures every case asked for and prints a table."""
    parser = ArgumentParser(prog="python -m benchmarks.train_step", description=__doc__)
    parser.add_argument("--tasks", default="all", help="comma-separated; all = those of the table")
    parser.add_argument("--attentions", default="all", help="comma-separated")
    parser.add_argument("--seeds", default="1", help="numbers of seeds in a program: 1,3")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring per case")
    parser.add_argument("--out", type=pathlib.Path, help="append one JSON line a case")
    parser.add_argument("--case", help="task,attention,seeds: measure only this, print JSON")
    options = parser.parse_args(argv)
    if options.case:
        task, attention, seeds = options.case.split(",")
        print(json.dumps(_measure(task, attention, int(seeds), options.dtype, options.seconds)))
        return 0
    print(_HEADER)
    for task in _choose(options.tasks, TABLE, SIZES):
        for attention in _choose(options.attentions, ATTENTIONS, ATTENTIONS):
            for seeds in options.seeds.split(","):
                row = _in_a_process(task, attention, seeds, options)
                print(_line(row), flush=True)
                if options.out:
                    with open(options.out, "a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    return 0


def _choose(text: str, every, known) -> list[str]:
    names = list(every) if text == "all" else text.split(",")
    for name in names:
        if name not in known:
            raise UserError(f"unknown '{name}'{near_match(name, known)}")
    return names


def _in_a_process(task: str, attention: str, seeds: str, options) -> dict:
    command = [sys.executable, "-m", "benchmarks.train_step", f"--case={task},{attention},{seeds}"]
    command += [f"--dtype={options.dtype}", f"--seconds={options.seconds}"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        return {"task": task, "attention": attention, "seeds": int(seeds), "failed": True}
    return json.loads(ended.stdout.splitlines()[-1])


def _measure(task_name: str, attention: str, num_seeds: int, dtype: str, seconds: float) -> dict:
    import jax

    from lra import environment
    from lra.data import prepared
    from lra.evaluation import evaluate
    from lra.settings import load_config
    from lra.tasks import get_task
    from lra.trainer import Trainer

    seeds = f"seeds={tuple(range(num_seeds))}"
    config = load_config(f"configs/{task_name}.py:{attention}", [seeds, f"dtype={dtype}"])
    task = get_task(task_name)
    with tempfile.TemporaryDirectory() as folder:
        _write_random(folder, task, 4 * config.train.batch_size)
        trainer = Trainer(config, task, prepared.load(folder, task_name))
    state = trainer.init()
    begun = time.perf_counter()
    state, _ = jax.block_until_ready(trainer.train(state, 0, 1))
    first = time.perf_counter() - begun
    step_seconds, step = [], 1
    begun = time.perf_counter()
    count = 1
    while not step_seconds or time.perf_counter() - begun < seconds:
        call = time.perf_counter()
        state, _ = jax.block_until_ready(trainer.train(state, step, count))
        step_seconds.append((time.perf_counter() - call) / count)
        step += count
        count = max(1, min(100, int(1.0 / step_seconds[-1])))
    evaluate(trainer, state.params, state.rest, "test")
    call = time.perf_counter()
    evaluate(trainer, state.params, state.rest, "test")
    eval_seconds = time.perf_counter() - call
    per_step = statistics.median(step_seconds)
    examples = config.train.batch_size * num_seeds
    eval_speed = num_seeds * trainer.num_examples("test") / eval_seconds
    return {
        "task": task_name,
        "attention": attention,
        "seeds": num_seeds,
        "dtype": dtype,
        "device": environment.device_name(),
        "versions": environment.versions(),
        "compile_seconds": first - per_step,
        "steps_per_second": 1 / per_step,
        "examples_per_second": examples / per_step,
        "eval_examples_per_second": eval_speed,
        "peak_memory_mb": environment.peak_memory_mb(),
        "protocol_hours": _protocol_hours(config, per_step, num_seeds / eval_speed),
        "flops_per_step": num_seeds * _model_flops(config, task, trainer.length),
        "peak_flops_per_second": _matmul_rate(dtype),
    }


def _model_flops(config, task, length: int) -> int:
    """Operations in the matrix products of a training step of one seed."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from benchmarks.flops import product_flops
    from lra.state import make_model

    graphdef, state = nnx.split(
        nnx.eval_shape(lambda: make_model(config, task, length, nnx.Rngs(0)))
    )
    shape = (config.train.batch_size, *((2,) if task.pairs else ()), length)
    ids = jax.ShapeDtypeStruct(shape, jnp.int32)
    mask = jax.ShapeDtypeStruct(shape, jnp.bool_)
    forward = product_flops(lambda s, i, m: nnx.merge(graphdef, s)(i, m), state, ids, mask)
    return 3 * forward


def _protocol_hours(config, per_step: float, per_eval_example: float) -> float:
    """Hours of the whole protocol: training, an evaluation every so often, two on the test set."""
    _, _, validation, test = SIZES[config.task]
    evaluations = config.train.steps // config.train.eval_every
    evaluated = evaluations * validation + 2 * test
    return (config.train.steps * per_step + evaluated * per_eval_example) / 3600


def _write_random(folder: str, task, count: int) -> None:
    import numpy as np

    from lra.data.prepared import TaskWriter

    rng = np.random.default_rng(0)
    length = SIZES[task.name][0]
    high = 256 if task.first_id or task.pixels else task.vocab_size
    with TaskWriter(folder, task.name) as writer:
        if task.pairs:
            writer.sequences("docs", rng.integers(1, high, (count, length)).astype(np.uint8))
        for split in ("train", "validation", "test"):
            labels = rng.integers(0, task.num_classes, count).astype(np.int32)
            if task.pairs:
                pairs = rng.integers(0, count, (count, 2)).astype(np.int32)
                writer.array(f"{split}/pairs.npy", pairs)
            else:
                writer.sequences(split, rng.integers(1, high, (count, length)).astype(np.uint8))
            writer.array(f"{split}/labels.npy", labels)
        counts = dict.fromkeys(("train", "validation", "test"), count)
        writer.finish(data="random", source="benchmark", counts=counts, max_length=length)


def _matmul_rate(dtype: str, size: int = 2048) -> float:
    """Floating-point operations a second of a large matrix product on one device."""
    import jax
    import jax.numpy as jnp

    a = jax.random.normal(jax.random.key(0), (size, size), jnp.dtype(dtype))
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(a))
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        jax.block_until_ready(product(a))
        times.append(time.perf_counter() - begun)
    return 2 * size**3 / min(times)


_HEADER = (
    "| task | attention | seeds | compile s | steps/s | examples/s | eval ex/s | peak MB | "
    "protocol h | of matmul rate |\n|---|---|---|---|---|---|---|---|---|---|"
)


def _line(row: dict) -> str:
    if "failed" in row:
        return f"| {row['task']} | {row['attention']} | {row['seeds']} | failed |"
    share = row["flops_per_step"] * row["steps_per_second"] / row["peak_flops_per_second"]
    return (
        f"| {row['task']} | {row['attention']} | {row['seeds']} | {row['compile_seconds']:.1f} | "
        f"{row['steps_per_second']:.3g} | {row['examples_per_second']:.4g} | "
        f"{row['eval_examples_per_second']:.4g} | {row['peak_memory_mb']:.0f} | "
        f"{row['protocol_hours']:.3g} | {share:.1%} |"
    )


if __name__ == "__main__":
    run(main)
