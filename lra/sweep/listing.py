"""Text of `--dry_run`: the state of each run and an estimate of the time left."""

from collections.abc import Callable
from typing import Any

from lra.row import Key, Row, latest, make_key, without_number_format
from lra.sweep import under_way
from lra.sweep.estimate import (
    Estimate,
    differing_formats,
    duration,
    estimate,
    rows_with_costs,
)
from lra.sweep.place import Place, find, of_sweep, to_train
from lra.sweep.runs import Done, Run, Sweep, count, in_order, older_defaults
from lra.sweep.under_way import UnderWay

ABOUT_OLDER = (
    "the report keeps rows of older defaults apart: move their lines to another file to have them "
    "trained anew"
)


def listing(sweep: Sweep, place: Place, marks: dict[str, str | None]) -> str:
    """Return one line per run in order of execution, followed by counts and a time estimate.

    The line of a run ends with the name of its folder, as far as it is known: that of a missing run
    on prepared data, and those in which a run that is done was trained here.

    Args:
        sweep: The sweep.
        place: Place of the sweep.
        marks: Data marks by task; None for data to be generated, missing for unavailable data.
    """
    rows = place.rows()
    not_copied, unreadable = find(sweep.runs, place.row_files(sweep.runs), of_sweep(place.data))
    copied, done = Done(rows, place.data), Done([*rows, *not_copied], place.data)
    unique = latest(rows)  # a row may be in several files
    costs = rows_with_costs(unique)
    takes = {run.task: place.data.takes(run.task) for run in sweep.runs}
    results = _in_any_format(unique)
    lines, estimates, missing, older, generated = [], [], 0, 0, {}
    for run in in_order(sweep.runs, done):
        mark = marks.get(run.task)
        remaining = to_train(run, done, mark, place)
        missing += len(done.missing(run, mark))
        if outdated := done.older(run, mark):
            older += len(outdated)
            lines.append(f"older    {older_text(run, outdated)}")
        elif not remaining.seeds:
            suffix = " (not yet copied)" if copied.missing(run, mark) else ""
            lines.append(f"done     {run.title()}{suffix}{_in(place.present(run, mark))}")
        if not remaining.seeds:
            continue
        folder = None if mark is None else place.folder(remaining, mark)
        progress = under_way.read(folder.metrics) if folder else UnderWay()
        estimates.append(estimate(remaining, progress, costs, takes[run.task]))
        notes = _notes(remaining, progress, estimates[-1], done.failures(remaining))
        notes += [] if folder else ["data not prepared"]
        notes += _in_other_formats(remaining, results, takes[run.task])
        notes += [unreadable[folder.rows]] if folder and folder.rows in unreadable else []
        names = _in([folder.root.name] if folder else [])
        lines.append(f"missing  {remaining.title()} ({'; '.join(notes)}){names}")
        if run.task in marks and mark is None:
            generated[run.task] = place.data.estimate_line(run.task)
    seeds = sum(len(run.seeds) for run in sweep.runs)
    counts = f"{seeds - missing - older} of {seeds} rows done, {missing} missing"
    if older:
        counts += f", {older} of older defaults\n{ABOUT_OLDER}"
    return "\n".join([*lines, counts, *generated.values(), *_total(estimates, costs)])


def older_text(run: Run, outdated: dict[int, dict[str, Any]]) -> str:
    """Say which seeds of `run` have rows of older defaults; `ABOUT_OLDER` says what to do.

    Args:
        run: The run.
        outdated: Older defaults by seed, as returned by `Done.older`.
    """
    defaults = {f"{name}={value}" for older in outdated.values() for name, value in older.items()}
    return (
        f"{run.with_seeds(outdated).title()}: {count(len(outdated), 'row')} of older defaults "
        f"({', '.join(sorted(defaults))})"
    )


def _in(folders: list[str]) -> str:
    return f" in {', '.join(folders)}" if folders else ""


def _notes(
    run: Run,
    progress: UnderWay,
    time_left: Estimate | None,
    errors: list[str | None],
) -> list[str]:
    notes = [str(time_left) if time_left else "time unknown"]
    if progress.step:
        notes.insert(0, f"{progress.step} of {run.config['train.steps']} steps made")
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
            basis += "; those with ~ are of another device, other data or other settings"
        lines.append(basis)
    return lines
