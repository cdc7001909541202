"""How long does a training step take on a CPU, compared with the same step in PyTorch?

    pip install torch transformers
    python -m benchmarks.torch_train_step --task=listops --batch=4 --threads=2

Ours is the real step of `lra.trainer`: batches gathered by index, forward and backward pass with
dropout, the check for divergence, AdamW with its schedule. The peer is `benchmarks.torch_models`,
eager or (--compile) compiled, of the same sizes, with batches gathered the same way from the same
examples, fused AdamW and PyTorch's one-cycle schedule. All examples have full length and no padding
is cut (`lra.plan`), so both sides do the same work.

Each side runs in its own process on the same --threads cores, with huge pages as in `speed_memory`.
They take turns of --steps steps, one running while the other sleeps; after a warm-up turn, --rounds
turns count. Prints medians over turns of milliseconds per step, their ratio (PyTorch's time over
ours: above 1, ours is faster), the ratio of the fastest turns (least disturbed by other programs),
numbers of parameters (for differences see `benchmarks.torch_hugging_face`), peak memory of the
processes, and geometric means.
"""

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import training_tables
from benchmarks.cases import version_of
from benchmarks.random_data import LONGEST, write_random
from benchmarks.worker import (
    Worker,
    WorkerError,
    check_threads,
    environment_for,
    hold_to,
    timed,
)
from lra import training_rows
from lra.command_line import ArgumentParser, file_to_write, positive_integer, run
from lra.errors import UserError
from lra.near_names import near_match
from lra.process import peak_memory_bytes
from lra.tasks import get_task

# Each attention and the packages that its peer needs.
PEERS = {
    "standard": ("torch",),
    "nystrom": ("torch", "transformers"),
    "linformer": ("torch",),
    "performer": ("torch",),
    "reformer": ("torch", "transformers"),
}
SIDES = ("ours", "torch")
_BATCHES = 8  # batches of distinct examples
_PAUSE_SECONDS = 0.2  # until the other side's threads have gone to sleep


class PeerCase(NamedTuple):
    """A training step that both sides measure."""

    task: str
    attention: str
    batch: int
    data_dir: str
    threads: int
    compile: bool


def main(argv: list[str]) -> int:
    """Measure every requested attention and print a table."""
    options = _parse(argv)
    measurable = [name for name in options.attentions if _has_peer(name)]
    if not measurable:
        raise UserError("nothing to measure without PyTorch; install it as said above")
    training_rows.check(options.out, training_rows.PeerRow)
    print(f"{options.task}, batch {options.batch}, {options.threads} threads, float32\n")
    print(training_tables.PEER_HEADER)
    rows = []
    for name in measurable:
        row = _compare(name, options)
        print(training_tables.peer_line(row), flush=True)
        rows.append(row)
        if options.out:
            training_rows.append(options.out, row, training_rows.PeerRow)
    measured = [row for row in rows if "ratio" in row]
    if not measured:
        raise UserError("no case could be measured, see above")
    print("", *training_tables.means(measured), sep="\n")
    return 0


def _parse(argv: list[str]):
    parser = ArgumentParser(prog="python -m benchmarks.torch_train_step", description=__doc__)
    add = parser.add_argument
    add("--attentions", default="all", help="comma-separated (%(default)s)")
    add("--task", default="listops", help="of the benchmark (%(default)s)")
    add("--length", type=positive_integer, help="of the sequences; default: the task's")
    add("--batch", type=positive_integer, default=4, help="examples (%(default)s)")
    add("--threads", type=positive_integer, default=2, help="of each (%(default)s)")
    add("--rounds", type=positive_integer, default=7, help="turns each (%(default)s)")
    add("--steps", type=positive_integer, default=5, help="in a turn (%(default)s)")
    add("--compile", action="store_true", help="the peer through torch.compile")
    add("--out", type=file_to_write, metavar="FILE", help="append a row an attention")
    options = parser.parse_args(argv)
    names = options.attentions
    options.attentions = list(PEERS) if names == "all" else names.split(",")
    for name in options.attentions:
        if name not in PEERS:
            raise UserError(f"no peer for the attention '{name}'{near_match(name, PEERS)}")
    if options.task not in LONGEST:
        raise UserError(
            f"no random data for the task '{options.task}'{near_match(options.task, LONGEST)}"
        )
    check_threads(options.threads)
    return options


def _has_peer(attention: str) -> bool:
    """Return whether the peer's packages are installed; if not, print how to install them."""
    missing = [name for name in PEERS[attention] if version_of(name) is None]
    if missing:
        line = f"{attention} left out: pip install {' '.join(missing)}"
        print(line, file=sys.stderr)
    return not missing


def _compare(attention: str, options) -> dict[str, Any]:
    """Measure both sides in turns and return a row."""
    from lra import environment  # imports JAX, which PyTorch's process must not

    length = options.length or LONGEST[options.task]
    row = {"task": options.task, "attention": attention, "length": length}
    row |= {"batch": options.batch, "threads": options.threads, "steps": options.steps}
    row["compiled"] = options.compile
    peers = {name: version_of(name) for name in PEERS[attention]}
    row |= {"commit": environment.commit(), "versions": environment.versions() | peers}
    row["device"] = environment.cpu_name()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        lengths = np.full(_BATCHES * options.batch, length)
        write_random(folder, get_task(options.task), lengths, length)
        case = PeerCase(
            options.task, attention, options.batch, folder, options.threads, options.compile
        )
        try:
            sides = {}
            for name in SIDES:
                side = Worker(_side, name, case, environment=environment_for(case.threads))
                sides[name] = stack.enter_context(contextlib.closing(side))
            step_seconds = {name: [] for name in SIDES}
            for turn in range(1 + options.rounds):
                for name, side in sides.items():
                    time.sleep(_PAUSE_SECONDS)
                    seconds = side.ask(options.steps)
                    if turn:  # the first is a warm-up
                        step_seconds[name].append(seconds / options.steps)
            for name, side in sides.items():
                median, fastest = statistics.median(step_seconds[name]), min(step_seconds[name])
                row[name] = {"milliseconds": 1e3 * median, "fastest": 1e3 * fastest, **side.ask(0)}
        except WorkerError as error:
            print(f"{attention}: {error}", file=sys.stderr)
            return row | {"failed": True}
    row["ratio"] = row["torch"]["milliseconds"] / row["ours"]["milliseconds"]
    row["fastest_ratio"] = row["torch"]["fastest"] / row["ours"]["fastest"]
    return row


def _side(name: str, case: PeerCase) -> Callable[[int], Any]:
    """Prepare one side in its own process; return the function that answers requests.

    Given a number of steps, it makes them and returns the seconds taken; given 0, it returns the
    number of parameters and the peak memory.
    """
    hold_to(case.threads)  # JAX starts as many threads as there are cores
    steps, params = (_ours if name == "ours" else _torch)(case)
    steps(1)

    def answer(count: int) -> Any:
        if count == 0:
            return {"params": params, "peak_memory_mb": peak_memory_bytes() / 1e6}
        return timed(lambda: steps(count))

    return answer


def _load_config(case: PeerCase):
    from lra.settings import load_config

    batch = f"train.batch_size={case.batch}"
    return load_config(f"configs/{case.task}.py:{case.attention}", [batch])


def _ours(case: PeerCase) -> tuple[Callable[[int], None], int]:
    """Return a function that makes steps with `lra.trainer`, and the number of parameters."""
    import jax

    from lra.data import prepared
    from lra.trainer import Trainer

    jax.config.update("jax_platforms", "cpu")  # like PyTorch's side, even if there is a GPU
    data = prepared.load(case.data_dir, case.task)
    trainer = Trainer(_load_config(case), data, splits=("train",), cut_padding=False)
    state, done = trainer.init(), 0

    def steps(count: int) -> None:
        nonlocal state, done
        state, metrics = trainer.train(state, done, count)
        done += count
        jax.block_until_ready((state, metrics))

    return steps, trainer.num_params(state)


def _torch(case: PeerCase) -> tuple[Callable[[int], None], int]:
    """Return a function that makes the same steps in PyTorch, and the number of parameters."""
    import torch

    from benchmarks.torch_models import training

    torch.set_num_threads(case.threads)
    return training(_load_config(case), get_task(case.task), case.data_dir, case.compile)


if __name__ == "__main__":
    run(main, out_of_memory="a smaller --length or --batch needs less")
