"""What `--dry_run` tells: the state of each run and the time the rest will take."""

from collections.abc import Callable
from typing import Any

from lra.records import Key, Row, key, latest, make_key
from lra.row import NUMBER_FORMAT, without_number_format
from lra.sweep import under_way
from lra.sweep.estimate import Estimate, duration, estimate, rows_with_costs
from lra.sweep.place import Place, find, to_train
from lra.sweep.plan import Done, Run, Sweep, count, in_order, older_defaults
from lra.sweep.under_way import UnderWay


def listing(sweep: Sweep, place: Place, marks: dict[str, str | None]) -> str:
    """One line a run in the order of execution, then counts and an estimate.

    Args:
        sweep: the sweep.
        place: of the sweep.
        marks: of the data of each task; None or nothing where they are not prepared.
    """
    rows = place.rows()
    not_copied, unreadable = find(sweep.runs, place.data, place.row_files(sweep.runs))
    copied, done = Done(rows, place.data), Done([*rows, *not_copied], place.data)
    each_once = latest(rows)  # a row may be in several files
    costs = rows_with_costs(each_once)
    failures = {key(row)[:-1]: row.error for row in each_once if not row.final}
    takes = {run.task: place.data.takes(run.task) for run in sweep.runs}
    results = _in_any_format(each_once)
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
        estimates.append(estimate(left, there, costs, takes[run.task]))
        errors = [failures.get(left.key(seed, "")[:-1]) for seed in left.seeds]
        notes = _notes(left, there, estimates[-1], mark, errors)
        notes += _in_other_formats(left, results, takes[run.task])
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


def _notes(
    run: Run, there: UnderWay, left: Estimate | None, mark: str | None, errors: list[str | None]
) -> list[str]:
    notes = [str(left) if left else "time unknown"]
    if there.step:
        notes.insert(0, f"{there.step} of {run.config['train.steps']} steps made")
    if mark is None:
        notes.append("data not prepared")
    return notes + [f"failed before: {error}" for error in dict.fromkeys(errors) if error]


def _in_any_format(rows: list[Row]) -> dict[Key, list[Row]]:
    """The results by today's defaults, by their key without data and number format."""
    found: dict[Key, list[Row]] = {}
    for row in rows:
        if row.final and not older_defaults(row):
            plain = without_number_format(row.config_overrides)
            name = make_key(row.task, row.attention, plain, row.seed, row.protocol, "")
            found.setdefault(name, []).append(row)
    return found


def _in_other_formats(
    run: Run, results: dict[Key, list[Row]], takes: Callable[[str], bool]
) -> list[str]:
    """A note, if some seeds have results that do not count because of their number format."""
    plain = without_number_format(run.changed)
    names = [make_key(run.task, run.attention, plain, seed, run.protocol, "") for seed in run.seeds]
    formats = {
        " ".join(f"{name}={getattr(row, name)}" for name in _differing(row, run))
        for row in (row for name in names for row in results.get(name, ()))
        if takes(row.data) and _differing(row, run)
    }
    return [f"results with {text} do not count" for text in sorted(formats)]


def _differing(row: Row, run: Run) -> list[str]:
    return [name for name in NUMBER_FORMAT if getattr(row, name) != run.config[name]]


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
            f"times by rows are those of {costs[-1].devices}, where the latest was made"
            + "; those with ~ of the device they name" * elsewhere
        )
    return lines
