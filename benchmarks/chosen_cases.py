"""Options that choose training steps to compile, for benchmarks that run none of them."""

import argparse

from benchmarks.random_data import LONGEST
from benchmarks.train_case import TrainCase
from benchmarks.train_step import choose
from configs.default import ATTENTIONS
from lra.command_line import integer_from_0, positive_integer
from lra.published import TABLE3, TABLE_TASKS
from lra.setting_values import DTYPES


def add_options(parser: argparse.ArgumentParser, largest: str) -> None:
    """Add the options that `chosen_cases` reads, and --largest.

    Args:
        parser: Parser of the benchmark.
        largest: What --largest names, such as `kernels`.
    """
    add = parser.add_argument
    add("--tasks", default="all", help="comma-separated; all = those of the table")
    add("--attentions", default="all", help="comma-separated; all = those of the table")
    add("--seeds", type=positive_integer, default=1, help="in one program (1)")
    add("--dtype", default="bfloat16", choices=DTYPES, help="(%(default)s)")
    add("--override", action="append", default=[], metavar="KEY=VALUE", help="of the configuration")
    add("--largest", type=integer_from_0, default=0, metavar="N", help=f"{largest} to name (0)")


def chosen_cases(options: argparse.Namespace) -> list[TrainCase]:
    """Return the chosen cases, task by task.

    Raises:
        UserError: A task or an attention is unknown.
    """
    tasks = choose(options.tasks, TABLE_TASKS, LONGEST)
    attentions = choose(options.attentions, TABLE3, ATTENTIONS)
    overrides = tuple(options.override)
    return [
        TrainCase(task, attention, options.seeds, options.dtype, None, overrides)
        for task in tasks
        for attention in attentions
    ]
