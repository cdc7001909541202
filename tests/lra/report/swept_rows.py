"""Rows of a sweep, rows to compare with, and what the report makes of them."""

import dataclasses

from lra.report.dots import Dot
from lra.report.figure_files import Figure
from lra.report.figures import figures
from lra.report.groups import Group, group
from lra.report.sweep_points import sweeps
from tests.lra.row_factory import make_row

SIZES = (16, 32, 128)


def sweep_rows() -> list:
    return [make_row(0.4, seed=s, examples_per_second=500.0) for s in (0, 1)] + [
        make_row(
            0.3 + size / 1000 + seed / 100,
            seed=seed,
            examples_per_second=1000.0 / size,
            config_overrides={"model.attention.num_landmarks": size},
        )
        for size in SIZES
        for seed in (0, 1)
    ]


def options(rows) -> Group:
    """The group of the attentions' options."""
    return next(g for g in group(rows) if g.slug == "options")


def figures_of(one: Group) -> list[Figure]:
    """The figures of one group."""
    ((found,), _) = figures([one], [])
    return found


def swept(rows) -> dict[float, Dot]:
    """The only sweep of the options, of ListOps."""
    ((sweep,),) = sweeps(options(rows)).values()
    return sweep.by_task["listops"]


CPU = {"device": "a CPU", "examples_per_second": 32.0}
GPU = {"device": "a GPU", "examples_per_second": 5000.0}


def beside(rows) -> list:
    """The rows, and the same of another attention to compare with."""
    return [*rows, *(dataclasses.replace(row, attention="linformer") for row in rows)]
