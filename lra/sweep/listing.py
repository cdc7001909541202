"""Text of `--dry_run`: the state of each run and an estimate of the time left."""

from collections.abc import Callable
from typing import Any

from lra.row import Key, Row, key, latest, make_key, without_number_format
from lra.sweep import under_way
from lra.sweep.estimate import (
    Estimate,
    differing_formats,
    duration,
    estimate,
    rows_with_costs,
)
from lra.sweep.place import Place, find, of_sweep, to_train
from lra.sweep.plan import Done, Run, Sweep, count, in_order, older_defaults
from lra.sweep.under_way import UnderWay


def listing(sweep: Sweep, place: Place, marks: dict[str, str | None]) -> str:
    """Return one line per run in order of execution, followed by counts and a time estimate.

    Args:
        sweep: The sweep.
        place: Place of the sweep.
        marks: Data marks by task; None or missing for data that are not prepared.
    """
    rows = place.rows()
    not_copied, unreadable = find(sweep.runs, place.row_files(sweep.runs), of_sweep(place.data))
    copied, done = Done(rows, place.data), Done([*rows, *not_copied], place.data)
    unique = latest(rows)  # a row may be in several files
    costs = rows_with_costs(unique)
    failures = {key(row)[:-1]: row.error for row in unique if not row.final}
    takes = {run.task: place.data.takes(run.task) for run in sweep.runs}
    results = _in_any_format(unique)
    lines, estimates, missing, older = [], [], 0, 0
    for run in in_order(sweep.runs, rows):
        mark = marks.get(run.task)
        remaining = to_train(run, done, mark, place)
        missing += len(done.missing(run, mark))
        if outdated := done.older(run, mark):
            older += len(outdated)
            lines.append(f"older    {older_text(run, outdated)}")
        elif not remaining.seeds:
            suffix = " (not yet copied)" if copied.missing(run, mark) else ""
            lines.append(f"done     {run.title()}{suffix}")
        if not remaining.seeds:
            continue
        folder = None if mark is None else place.folder(remaining, mark)
        progress = under_way.read(folder.metrics) if folder else UnderWay()
        estimates.append(estimate(remaining, progress, costs, takes[run.task]))
        errors = [failures.get(remaining.key(seed, "")[:-1]) for seed in remaining.seeds]
        notes = _notes(remaining, progress, estimates[-1], mark, errors)
        notes += _in_other_formats(remaining, results, takes[run.task])
        notes += [unreadable[folder.rows]] if folder and folder.rows in unreadable else []
        lines.append(f"missing  {remaining.title()} ({'; '.join(notes)})")
    seeds = sum(len(run.seeds) for run in sweep.runs)
    counts = f"{seeds - missing - older} of {seeds} rows done, {missing} missing"
    if older:
        counts += f", {older} of older defaults"
    lines.append(counts)
    return "\n".join([*lines, *_total(estimates, costs)])


def older_text(run: Run, outdated: dict[int, dict[str, Any]]) -> str:
    """Say which seeds of `run` have rows of older defaults, and what to do about them.

    Args:
        run: The run.
        outdated: Older defaults by seed, as returned by `Done.older`.
    """
    defaults = {f"{name}={value}" for older in outdated.values() for name, value in older.items()}
    return (
        f"{run.with_seeds(outdated).title()}: {count(len(outdated), 'row')} of older defaults "
        f"({', '.join(sorted(defaults))}), which the report keeps apart: move their lines to "
        "another file to have them trained anew"
    )


def _notes(
    run: Run,
    progress: UnderWay,
    time_left: Estimate | None,
    mark: str | None,
    errors: list[str | None],
) -> list[str]:
    notes = [str(time_left) if time_left else "time unknown"]
    if progress.step:
        notes.insert(0, f"{progress.step} of {run.config['train.steps']} steps made")
    if mark is None:
        notes.append("data not prepared")
    return notes + [f"failed before: {error}" for error in dict.fromkeys(errors) if error]


def _in_any_format(rows: list[Row]) -> dict[Key, list[Row]]:
    """Group results under today's defaults by their key without data and number format."""
    results: dict[Key, list[Row]] = {}
    for row in rows:
        if row.final and not older_defaults(row):
            plain = without_number_format(row.config_overrides)
            name = make_key(row.task, row.attention, plain, row.seed, row.protocol, "")
            results.setdefault(name, []).append(row)
    return results


def _in_other_formats(
    run: Run, results: dict[Key, list[Row]], takes: Callable[[str], bool]
) -> list[str]:
    """Return notes on results of `run` that do not count because of their number format."""
    plain = without_number_format(run.changed)
    names = [make_key(run.task, run.attention, plain, seed, run.protocol, "") for seed in run.seeds]
    formats = {
        " ".join(f"{name}={getattr(row, name)}" for name in differing_formats(row, run))
        for row in (row for name in names for row in results.get(name, ()))
        if takes(row.data) and differing_formats(row, run)
    }
    return [f"results with {text} do not count" for text in sorted(formats)]


def _total(estimates: list[Estimate | None], costs: list[Row]) -> list[str]:
    """Return lines with the total time left and the device of the rows it is based on."""
    if not estimates:
        return []
    sure = [e.seconds for e in estimates if e and not e.rough]
    rough = [e.seconds for e in estimates if e and e.rough]
    unknown = len(estimates) - len(sure) - len(rough)
    times = [f"about {duration(sum(sure))}"] if sure else []
    # Not one sum: a run may take much longer here than on the device of its rows.
    times += [f"~{duration(sum(rough))} for {count(len(rough))}"] if rough else []
    times += [f"unknown for {count(unknown)}"] if unknown else []
    lines = [f"time left: {', '.join(times)}"]
    if costs:
        basis = f"times by rows are those of {costs[-1].devices}, where the latest was made"
        if rough:
            basis += "; those with ~ are of another device, other data or another number format"
        lines.append(basis)
    return lines
