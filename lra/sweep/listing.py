"""What `--dry_run` tells: the state of each run and the time the rest will take."""

import json
import statistics
from typing import Any, NamedTuple

from lra.records import Row, key, latest
from lra.sweep import under_way
from lra.sweep.place import Place, find, to_train
from lra.sweep.plan import Done, Run, Sweep, count, in_order
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


def listing(sweep: Sweep, place: Place, marks: dict[str, str | None]) -> str:
    """One line a run in the order of execution, then counts and an estimate.

    Args:
        sweep: the sweep.
        place: of the sweep.
        marks: of the data of each task; None or nothing where they are not prepared.
    """
    rows = place.rows()
    not_copied, unreadable = find(sweep.runs, place.data, place.row_files(sweep.runs))
    copied, done, costs = Done(rows), Done([*rows, *not_copied]), rows_with_costs(rows)
    failures = {key(row)[:-1]: row.error for row in latest(rows) if not row.final}
    lines, estimates, missing, older = [], [], 0, 0
    for run in in_order(sweep.runs, rows):
        mark = marks.get(run.task)
        left = to_train(run, done, mark, place)
        missing += len(done.missing(run, mark))
        if outdated := done.older(run, mark):
            older += len(outdated)
            lines.append(f"older    {older_text(run, outdated)}")
        elif not left.seeds:
            waiting = " (not yet copied)" * bool(copied.missing(run, mark))
            lines.append(f"done     {run.title()}{waiting}")
        if not left.seeds:
            continue
        folder = None if mark is None else place.folder(left, mark)
        there = under_way.read(folder.metrics) if folder else UnderWay()
        estimates.append(estimate(left, there, costs))
        errors = [failures.get(left.key(seed, "")[:-1]) for seed in left.seeds]
        notes = _notes(left, there, estimates[-1], mark, errors)
        notes += [unreadable[folder.rows]] if folder and folder.rows in unreadable else []
        lines.append(f"missing  {left.title()} ({'; '.join(notes)})")
    seeds = sum(len(run.seeds) for run in sweep.runs)
    lines.append(
        f"{seeds - missing - older} of {seeds} rows done, {missing} missing"
        + f", {older} of older defaults" * bool(older)
    )
    return "\n".join([*lines, *_total(estimates, costs)])


def older_text(run: Run, outdated: dict[int, dict[str, Any]]) -> str:
    """Which seeds of `run` have rows of older defaults (by seed), and what to do about it."""
    defaults = {f"{name}={value}" for older in outdated.values() for name, value in older.items()}
    return (
        f"{run.with_seeds(outdated).title()}: {count(len(outdated), 'row')} of older defaults "
        f"({', '.join(sorted(defaults))}), which the report keeps apart: move their lines to "
        "another file to have them trained anew"
    )


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


def estimate(run: Run, there: UnderWay, costs: list[Row]) -> Estimate | None:
    """What `run` will still take; None where nothing tells.

    A run under way goes on at its own speed, evaluations aside. Of another one the rows of the
    same task and attention tell, of the device of the latest row if there are any, else of
    another; those that trained the same model in the same way if there are any. Their time is
    scaled with steps and seeds, which is too much where several seeds in one program cost little
    more than one.

    Args:
        run: with the seeds to train.
        there: how far it is.
        costs: the rows to go by, `rows_with_costs`.
    """
    steps = run.config["train.steps"] - there.step
    if there.examples_per_second:
        examples = steps * run.config["train.batch_size"] * len(run.seeds)
        speed = there.examples_per_second
        return Estimate(examples / speed, f"at {speed:,.0f} examples/s, evaluations aside")
    near = [row for row in costs if (row.task, row.attention) == (run.task, run.attention)]
    if not near:
        return None
    here = [row for row in near if _device(row) == _device(costs[-1])]
    elsewhere = not here
    near = here or [row for row in near if _device(row) == _device(near[-1])]
    alike = [row for row in near if _what_costs(row.config) == _what_costs(run.config)]
    chosen = alike or near
    each = statistics.median(
        row.wall_seconds / (row.steps * row.seeds_in_program) for row in chosen
    )
    basis = f"by {count(len(chosen), 'row')}" + " of other settings" * (not alike)
    basis += f" on {_device_title(chosen[-1])}" * elsewhere
    return Estimate(each * steps * len(run.seeds), basis, elsewhere)


def _what_costs(config: dict[str, Any]) -> str:
    """What of a flat configuration the time of a step and its evaluations depends on, as JSON.

    Rows have been JSON: their tuples are lists.
    """
    costly = {name: value for name, value in config.items() if name.startswith(_COSTLY)}
    return json.dumps(costly, sort_keys=True)


def rows_with_costs(rows: list[Row]) -> list[Row]:
    """The rows that tell what a step costs.

    A run that diverged early was for the most part compilation.
    """
    return [
        row
        for row in rows
        if row.status == "ok" and row.wall_seconds and row.steps and row.seeds_in_program
    ]


def _device(row: Row) -> tuple[str | None, int | None]:
    return row.device, row.num_devices


def _device_title(row: Row) -> str:
    return f"{row.num_devices} x " * ((row.num_devices or 1) > 1) + str(row.device)


def _notes(
    run: Run, there: UnderWay, left: Estimate | None, mark: str | None, errors: list[str | None]
) -> list[str]:
    notes = [str(left) if left else "time unknown"]
    if there.step:
        notes.insert(0, f"{there.step} of {run.config['train.steps']} steps made")
    if mark is None:
        notes.append("data not prepared")
    return notes + [f"failed before: {error}" for error in dict.fromkeys(errors) if error]


def _total(estimates: list[Estimate | None], costs: list[Row]) -> list[str]:
    """The time of all runs that are left, and on what device the rows were made."""
    if not estimates:
        return []
    known = [left for left in estimates if left]
    unknown, elsewhere = len(estimates) - len(known), any(left.elsewhere for left in known)
    total = duration(sum(left.seconds for left in known))
    times = [f"{'~' if elsewhere else 'about '}{total}"] if known else []
    times += [f"unknown for {count(unknown)}"] if unknown else []
    lines = [f"time left: {', '.join(times)}"]
    if costs:
        lines.append(
            f"times by rows are those of {_device_title(costs[-1])}, where the latest was made"
            + "; those with ~ of the device they name" * elsewhere
        )
    return lines


def duration(seconds: float) -> str:
    """`45 s`, `12 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
