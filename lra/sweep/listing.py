"""What `--dry_run` tells: the state of each run and the time the rest will take."""

import dataclasses
import statistics

from lra.records import Row, key, latest
from lra.sweep.plan import Done, Run, Sweep, count


def listing(sweep: Sweep, rows: list[Row], marks: dict[str, str | None]) -> str:
    """One line a run, then counts and an estimate.

    Args:
        sweep: the sweep.
        rows: those there are.
        marks: of the data of each task; None where they are not prepared.
    """
    done = Done(rows)
    failures = {key(row)[:-1]: row.error for row in latest(rows) if not row.final}
    lines, seconds, unknown, missing, seeds = [], 0.0, 0, 0, 0
    for run in sweep.runs:
        left = dataclasses.replace(run, seeds=done.missing(run, marks[run.task]))
        missing += len(left.seeds)
        seeds += len(run.seeds)
        if not left.seeds:
            lines.append(f"done     {run.title()}")
            continue
        cost = estimate(left, rows)
        seconds += cost or 0.0
        unknown += cost is None
        notes = ["time unknown" if cost is None else f"about {duration(cost)}"]
        if marks[run.task] is None:
            notes.append("data not prepared")
        errors = [failures.get(run.key(seed, "")[:-1]) for seed in left.seeds]
        notes += [f"failed before: {error}" for error in dict.fromkeys(errors) if error]
        lines.append(f"missing  {left.title()} ({'; '.join(notes)})")
    lines.append(f"{seeds - missing} of {seeds} rows done, {missing} missing")
    if missing:
        times = [f"about {duration(seconds)}"] if seconds else []
        times += [f"unknown for {count(unknown)}"] if unknown else []
        lines.append(f"time left: {', '.join(times)}")
    return "\n".join(lines)


def estimate(run: Run, rows: list[Row]) -> float | None:
    """Seconds that `run` will take, by the rows of the same task and attention; None if none.

    Their time is scaled with steps and seeds, which is too much where several seeds in one
    program cost little more than one.
    """
    costs = [
        row.wall_seconds / (row.steps * row.seeds_in_program)
        for row in rows
        if (row.task, row.attention) == (run.task, run.attention)
        and row.wall_seconds
        and row.steps
        and row.seeds_in_program
    ]
    if not costs:
        return None
    return statistics.median(costs) * run.config["train.steps"] * len(run.seeds)


def duration(seconds: float) -> str:
    """`45 s`, `12 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
