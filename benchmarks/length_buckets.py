"""How much time does it save to leave out padding?

    python -m benchmarks.length_buckets --tasks=listops,text,pathfinder --attentions=nystrom

Times training steps and evaluations of the protocol with the cuts of `lra.plan` and without, on
random tokens in sequences whose lengths and zeros are distributed like the task's. Both run in one
process and take turns. Prints the bucket lengths, the seconds to compile a training step of each,
medians over --rounds turns of the seconds per step and per evaluation, and the ratios of these
(with buckets / without).
"""

import statistics
import time

import jax

from benchmarks import markdown
from benchmarks.train_case import TrainCase, make_trainer, time_steps
from benchmarks.train_step import choose
from configs.default import ATTENTIONS
from lra.command_line import ArgumentParser, positive_integer, positive_number, run
from lra.environment import check_jax
from lra.errors import UserError
from lra.pace import Pace
from lra.published import TABLE_TASKS
from lra.trainer import Trainer

_TITLES = (
    *("task", "attention", "lengths", "compile s, without", "with"),
    *("s/step, without", "with", "ratio", "s/evaluation, without", "with", "ratio"),
)


def main(argv: list[str]) -> int:
    """Measure every requested pair of task and attention and print a table."""
    parser = ArgumentParser(prog="python -m benchmarks.length_buckets", description=__doc__)
    add = parser.add_argument
    add("--tasks", default="listops,text", metavar="A,B", help="(%(default)s)")
    add("--attentions", default="all", metavar="A,B")
    add("--rounds", type=positive_integer, default=3, help="turns of each (%(default)s)")
    add("--seconds", type=positive_number, default=5.0, help="of steps a turn (%(default)s)")
    options = parser.parse_args(argv)
    tasks = choose(options.tasks, TABLE_TASKS, TABLE_TASKS)
    attentions = choose(options.attentions, ATTENTIONS, ATTENTIONS)
    check_jax()
    print(markdown.header(_TITLES), flush=True)
    cases = [TrainCase(task, name, 1, "float32") for task in tasks for name in attentions]
    compared = [_print_case(case, options.rounds, options.seconds) for case in cases]
    if not any(compared):
        raise UserError(
            "nothing to compare: these tasks have little padding, or it is not left out here"
        )
    return 0


def _print_case(case: TrainCase, rounds: int, seconds: float) -> bool:
    """Print a line for a case; return whether there was anything to compare."""
    trainers = [make_trainer(case, cut_padding=cut) for cut in (False, True)]
    ends = trainers[1].plan.eval_buckets.ends
    lengths = ", ".join(map(str, ends))
    if ends == (trainers[1].length,):
        print(markdown.line([case.task, case.attention, lengths]), flush=True)
        return False
    first_steps, steps, evaluations = compare(trainers, rounds, seconds)
    cells = [case.task, case.attention, lengths, *(f"{x:.0f}" for x in first_steps)]
    for padded, cut in (steps, evaluations):
        cells += [f"{padded:.3g}", f"{cut:.3g}", f"{cut / padded:.2f}"]
    print(markdown.line(cells), flush=True)
    return True


def compare(
    trainers: list[Trainer], rounds: int, seconds: float
) -> tuple[list[float], list[float], list[float]]:
    """Time trainers in turns.

    Args:
        trainers: Trainers to compare.
        rounds: Number of turns of each trainer.
        seconds: Seconds of training steps per turn.

    Returns:
        For each trainer, seconds of its first step (with compilation), and the median seconds of
        a later step and of an evaluation.
    """
    states, first_steps = [], []
    paces = [Pace() for _ in trainers]  # of all evaluations, as in a run

    def evaluate(index: int) -> None:
        trainer, (state, _) = trainers[index], states[index]
        trainer.new_evaluation(state.params, state.rest, "test").to_the_end(paces[index])

    for index, trainer in enumerate(trainers):
        state = jax.block_until_ready(trainer.init())
        start = time.perf_counter()
        state, _ = jax.block_until_ready(trainer.train(state, 0, 1))
        first_steps.append(time.perf_counter() - start)
        states.append((state, 1))
        evaluate(index)
    steps, evaluations = ([[] for _ in trainers] for _ in range(2))
    for _ in range(rounds):
        for index, trainer in enumerate(trainers):
            state, step, per_step = time_steps(trainer.train, *states[index], seconds)
            states[index] = state, step
            steps[index].append(per_step)
            start = time.perf_counter()
            evaluate(index)
            evaluations[index].append(time.perf_counter() - start)
    return first_steps, *([statistics.median(x) for x in xs] for xs in (steps, evaluations))


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)  # compilation is timed
    run(main)
