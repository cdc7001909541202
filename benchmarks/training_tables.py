"""Tables of training steps, as printed by commands and shown on the page."""

import statistics
from collections.abc import Iterable

from benchmarks import markdown
from lra.published import TABLE3
from lra.training_rows import StepValues

_CELLS = {(task, attention) for attention, tasks in TABLE3.items() for task in tasks}

STEP_TITLES = [
    *("task", "attention", "seeds", "batch", "deterministic", "compile s", "steps/s"),
    *("examples/s", "eval ex/s", "peak MB", "protocol h", "of matmul rate", "of one seed's time"),
]
PEER_TITLES = [
    *("attention", "ours ms/step", "PyTorch ms/step", "ratio", "of fastest turns"),
    *("parameters, ours", "PyTorch", "peak MB, ours", "PyTorch"),
]
STEP_HEADER = markdown.header(STEP_TITLES)
PEER_HEADER = markdown.header(PEER_TITLES)


def step_line(row: StepValues) -> str:
    """Format a row as a line of the table under `STEP_HEADER`."""
    if "failed" in row:
        return markdown.line([row["task"], _model(row), str(row["seeds"]), "failed"])
    return markdown.line(step_cells(row))


def step_cells(row: StepValues) -> list[str]:
    """Format the cells of a row under `STEP_TITLES`."""
    cost, hours = row.get("cost_against_one_seed"), row.get("protocol_hours")
    return [
        row["task"],
        _model(row),
        f"{row['seeds']}",
        f"{row['batch']}",
        "yes" if row["deterministic"] else "no",
        f"{row['compile_seconds']:.1f}",
        _number(row["steps_per_second"]),
        _number(row["examples_per_second"]),
        _number(row["eval_examples_per_second"]),
        f"{row['peak_memory_mb']:.0f}",
        "–" if hours is None else _number(hours),
        _utilisation(row),
        "" if cost is None else f"{cost:.2f}",
    ]


def _model(row: StepValues) -> str:
    """Name the attention and what else is not the default: `nystrom, num_landmarks=16`."""
    keys = (each.removeprefix("model.") for each in row.get("overrides", ()))
    return ", ".join([row["attention"], *(key.removeprefix("attention.") for key in keys)])


def _number(value: float) -> str:
    """Format a positive number with three significant digits, or all those before the point."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def _utilisation(row: StepValues) -> str:
    """Format the share of peak FLOP/s; only a bound for older rows, which count padding."""
    flops, most = (row.get(f"{which}flops_per_step") for which in ("real_", ""))
    if flops is None and most is None:
        return "–"
    bound, flops = ("≤", most) if flops is None else ("", flops)
    peak = row["peak_flops_per_second"] * row["num_devices"]
    return f"{bound}{flops * row['steps_per_second'] / peak:.1%}"


def sums(rows: Iterable[StepValues]) -> list[str]:
    """Return a line per number of seeds: total hours of whole runs, and the number of cells.

    Rows with overrides are no cells of the table.
    """
    hours: dict[int, dict[tuple[str, str], float]] = {}
    for row in rows:
        cell = row["task"], row["attention"]
        if cell in _CELLS and row.get("whole_hours") and not row.get("overrides"):
            hours.setdefault(row["seeds"], {})[cell] = row["whole_hours"]
    return [
        f"{seeds} seed{'s in one program' if seeds > 1 else ''}: {len(by_cell)} of "
        f"{len(_CELLS)} cells of the table, {_number(sum(by_cell.values()))} h in all (training, "
        "evaluations, compilation)"
        for seeds, by_cell in hours.items()
    ]


def peer_line(row: StepValues) -> str:
    """Format a row as a line of the table under `PEER_HEADER`."""
    if "failed" in row:
        return markdown.line([row["attention"], "failed"])
    return markdown.line(peer_cells(row))


def peer_cells(row: StepValues) -> list[str]:
    """Format the cells of a row under `PEER_TITLES`."""
    ours, torch = row["ours"], row["torch"]
    return [
        row["attention"],
        f"{ours['milliseconds']:.0f}",
        f"{torch['milliseconds']:.0f}",
        f"{row['ratio']:.2f}",
        f"{row['fastest_ratio']:.2f}",
        f"{ours['params']:,}",
        f"{torch['params']:,}",
        f"{ours['peak_memory_mb']:,.0f}",
        f"{torch['peak_memory_mb']:,.0f}",
    ]


def means(rows: Iterable[StepValues]) -> list[str]:
    """Return lines with the geometric mean and minimum of both ratios, PyTorch's time over ours."""
    rows, lines = list(rows), []
    for title, key in (("medians", "ratio"), ("fastest turns", "fastest_ratio")):
        ratios = [row[key] for row in rows]
        mean = statistics.geometric_mean(ratios)
        lines.append(f"ratio of {title}: geometric mean {mean:.2f}, smallest {min(ratios):.2f}")
    return lines
