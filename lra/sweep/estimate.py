"""How long the runs of a sweep will take, by runs under way and by rows."""

import json
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from lra.records import Row
from lra.sweep.plan import Run, count
from lra.sweep.under_way import UnderWay

_COSTLY = (
    "dtype",
    "matmul_precision",
    "mesh.",
    "model.",
    "train.batch_size",
    "train.eval_",
    "train.microbatches",
)

# Seconds, thousands of years: no run takes longer, but damaged rows and metrics can say so.
_LONGEST = 1e12


class Estimate(NamedTuple):
    """Seconds that are left of a run, and by what they are known.

    Attributes:
        seconds: that are left.
        basis: of the estimate, in words.
        elsewhere: whether by rows of another device than that of the latest row.
    """

    seconds: float
    basis: str
    elsewhere: bool = False

    def __str__(self) -> str:
        return f"{'~' if self.elsewhere else 'about '}{duration(self.seconds)} {self.basis}"


def estimate(
    run: Run, there: UnderWay, costs: list[Row], takes: Callable[[str], bool]
) -> Estimate | None:
    """What `run` will still take; None where nothing tells, or what tells is no time.

    A run under way goes on at its own speed, evaluations aside. Of another one the rows of the
    same task and attention tell, scaled with the examples that all its seeds are trained on, which
    is too much where several seeds in one program cost little more than one.

    Args:
        run: with the seeds to train.
        there: how far it is.
        costs: the rows to go by, `rows_with_costs`.
        takes: whether rows on data marked so are of the data of the run.
    """
    steps = max(0, run.config["train.steps"] - there.step)  # damaged metrics may be beyond the end
    examples = steps * _batch(run.config) * len(run.seeds)
    if there.examples_per_second:
        speed = there.examples_per_second
        basis = f"at {speed:,.0f} examples/s, evaluations aside"
        return _possible(Estimate(examples / speed, basis))
    near = [row for row in costs if (row.task, row.attention) == (run.task, run.attention)]
    if not near:
        return None
    here = [row for row in near if row.devices == costs[-1].devices]
    return _possible(_by_rows(run, examples, here or near, takes, elsewhere=not here))


def _possible(found: Estimate) -> Estimate | None:
    """The estimate; None where it is infinite or as good as that."""
    return found if found.seconds <= _LONGEST else None


def _by_rows(
    run: Run, examples: int, rows: list[Row], takes: Callable[[str], bool], elsewhere: bool
) -> Estimate:
    """An estimate by the rows that are most like the run.

    Of the rows of one device, those on the run's data if there are any; of these, those of the same
    model trained in the same way if there are any. `basis` says in what they differ from the run.
    Data come first, since the examples of other data may have another length.
    """
    rows = [row for row in rows if row.devices == rows[-1].devices]
    on_data = [row for row in rows if takes(row.data)]
    rows = on_data or rows
    alike = [row for row in rows if _what_costs(row.config) == _what_costs(run.config)]
    rows = alike or rows
    each = statistics.median(
        # Divided one by one, since the product of the divisors may be beyond the floats.
        row.wall_seconds / row.steps / _batch(row.config) / row.seeds_in_program
        for row in rows
    )
    basis = f"by {count(len(rows), 'row')}" + " of other settings" * (not alike)
    basis += " on other data" * (not on_data) + f" on {rows[-1].devices}" * elsewhere
    return Estimate(each * examples, basis, elsewhere)


def _batch(config: dict[str, Any]) -> int:
    return config["train.batch_size"]


def _what_costs(config: dict[str, Any]) -> str:
    """What of a flat configuration the time of a step and its evaluations depends on, as JSON.

    Rows have been JSON: their tuples are lists.
    """
    costly = {name: value for name, value in config.items() if name.startswith(_COSTLY)}
    return json.dumps(costly, sort_keys=True)


def rows_with_costs(rows: list[Row]) -> list[Row]:
    """The rows that tell what a step costs.

    A run that diverged early was for the most part compilation, and one that went on with other
    devices took as long as neither.
    """
    return [
        row
        for row in rows
        if row.status == "ok"
        and not row.moved
        and row.wall_seconds
        and row.steps
        and row.seeds_in_program
        and row.config.get("train.batch_size")
    ]


def duration(seconds: float) -> str:
    """`45 s`, `12 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
