"""How much does it save to leave out padding?

    python -m benchmarks.length_buckets --tasks=listops,text,pathfinder --attentions=nystrom

Training steps and evaluations of the protocol with `lra.buckets` and without, on random tokens in
sequences whose lengths and zeros are distributed as the task's, in one process and in turns.
Printed: the lengths, seconds to compile a training step of both, the medians over --rounds turns of
seconds a step and an evaluation, and what these take with buckets over what they take without.
"""

import statistics
import time

import jax

from benchmarks.train_case import TrainCase, make_trainer, time_steps
from benchmarks.train_step import choose
from configs.default import ATTENTIONS
from lra.command_line import ArgumentParser, positive_integer, positive_number, run
from lra.errors import UserError
from lra.evaluation import evaluate
from lra.published import TASKS
from lra.trainer import Trainer

_TITLES = (
    *("task", "attention", "lengths", "compile s, without", "with"),
    *("s/step, without", "with", "ratio", "s/evaluation, without", "with", "ratio"),
)


def main(argv: list[str]) -> int:
    """Measures every pair asked for and prints a table."""
    parser = ArgumentParser(prog="python -m benchmarks.length_buckets", description=__doc__)
    add = parser.add_argument
    add("--tasks", default="listops,text", metavar="A,B", help="(%(default)s)")
    add("--attentions", default="all", metavar="A,B")
    add("--rounds", type=positive_integer, default=3, help="turns of each (%(default)s)")
    add("--seconds", type=positive_number, default=5.0, help="of steps a turn (%(default)s)")
    options = parser.parse_args(argv)
    tasks = choose(options.tasks, TASKS, TASKS)
    attentions = choose(options.attentions, ATTENTIONS, ATTENTIONS)
    print(f"| {' | '.join(_TITLES)} |\n|{'---|' * len(_TITLES)}", flush=True)
    cases = [TrainCase(task, name, 1, "float32") for task in tasks for name in attentions]
    if not sum([_print_case(case, options.rounds, options.seconds) for case in cases]):
        raise UserError(
            "nothing to compare: these tasks have little padding, or it is not left out here"
        )
    return 0


def _print_case(case: TrainCase, rounds: int, seconds: float) -> bool:
    """Prints a line for a case; returns whether there was anything to compare."""
    trainers = [make_trainer(case, cut_padding=cut) for cut in (False, True)]
    lengths = ", ".join(map(str, trainers[1].plan.eval_buckets))
    if trainers[1].plan.eval_buckets == (trainers[1].length,):
        print(f"| {case.task} | {case.attention} | {lengths} |", flush=True)
        return False
    compiled, steps, evaluations = compare(trainers, rounds, seconds)
    cells = [case.task, case.attention, lengths, *(f"{x:.0f}" for x in compiled)]
    for without, cut in (steps, evaluations):
        cells += [f"{without:.3g}", f"{cut:.3g}", f"{cut / without:.2f}"]
    print(f"| {' | '.join(cells)} |", flush=True)
    return True


def compare(
    trainers: list[Trainer], rounds: int, seconds: float
) -> tuple[list[float], list[float], list[float]]:
    """For each trainer seconds of the first step, with compilation, a step and an evaluation."""
    states, compiled = [], []
    for trainer in trainers:
        state = jax.block_until_ready(trainer.init())
        begun = time.perf_counter()
        state, _ = jax.block_until_ready(trainer.train(state, 0, 1))
        compiled.append(time.perf_counter() - begun)
        evaluate(trainer, state.params, state.rest, "test")
        states.append((state, 1))
    steps, evaluations = ([[] for _ in trainers] for _ in range(2))
    for _ in range(rounds):
        for number, trainer in enumerate(trainers):
            state, step, per_step = time_steps(trainer.train, *states[number], seconds)
            states[number] = state, step
            steps[number].append(per_step)
            begun = time.perf_counter()
            evaluate(trainer, state.params, state.rest, "test")
            evaluations[number].append(time.perf_counter() - begun)
    return compiled, *([statistics.median(x) for x in xs] for xs in (steps, evaluations))


if __name__ == "__main__":
    run(main)
