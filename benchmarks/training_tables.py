"""Tables of training steps: the columns that commands print and the page shows."""

import statistics
from collections.abc import Iterable

from lra.published import TABLE3
from lra.training_rows import Row

_CELLS = {(task, attention) for attention, tasks in TABLE3.items() for task in tasks}

STEP_TITLES = [
    *("task", "attention", "seeds", "batch", "deterministic", "compile s", "steps/s"),
    *("examples/s", "eval ex/s", "peak MB", "protocol h", "of matmul rate", "of one seed's time"),
]
PEER_TITLES = [
    *("attention", "ours ms/step", "PyTorch ms/step", "ratio", "of fastest turns"),
    *("parameters, ours", "PyTorch", "peak MB, ours", "PyTorch"),
]


def _pipe(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _header(titles: list[str]) -> str:
    return f"{_pipe(titles)}\n|{'---|' * len(titles)}"


STEP_HEADER = _header(STEP_TITLES)
PEER_HEADER = _header(PEER_TITLES)


def step_line(row: Row) -> str:
    """A line of the table of `STEP_HEADER`."""
    if "failed" in row:
        return _pipe([row["task"], row["attention"], str(row["seeds"]), "failed"])
    return _pipe(step_cells(row))


def step_cells(row: Row) -> list[str]:
    """The cells of a row, below `STEP_TITLES`."""
    against, hours = row.get("cost_against_one_seed"), row["protocol_hours"]
    return [
        row["task"],
        row["attention"],
        f"{row['seeds']}",
        f"{row['batch']}",
        "yes" if row["deterministic"] else "no",
        f"{row['compile_seconds']:.1f}",
        f"{row['steps_per_second']:.3g}",
        f"{row['examples_per_second']:.4g}",
        f"{row['eval_examples_per_second']:.4g}",
        f"{row['peak_memory_mb']:.0f}",
        "–" if hours is None else f"{hours:.3g}",
        _share(row),
        "" if against is None else f"{against:.2f}",
    ]


def _share(row: Row) -> str:
    """The share of the rate of a matrix product; of older rows a bound, since padding counts."""
    operations = row.get("real_flops_per_step")
    bound, operations = ("≤", row["flops_per_step"]) if operations is None else ("", operations)
    most = row["peak_flops_per_second"] * row["num_devices"]
    return f"{bound}{operations * row['steps_per_second'] / most:.1%}"


def sums(rows: Iterable[Row]) -> list[str]:
    """A line for each number of seeds: the hours of whole runs, and how many cells they are."""
    hours: dict[int, dict[tuple[str, str], float]] = {}
    for row in rows:
        cell = row["task"], row["attention"]
        if cell in _CELLS and row.get("whole_hours"):
            hours.setdefault(row["seeds"], {})[cell] = row["whole_hours"]
    return [
        f"{seeds} seed{'s in one program' if seeds > 1 else ''}: {len(of_cells)} of "
        f"{len(_CELLS)} cells of the table, {sum(of_cells.values()):.3g} h in all (training, "
        "evaluations, compilation)"
        for seeds, of_cells in hours.items()
    ]


def peer_line(row: Row) -> str:
    """A line of the table of `PEER_HEADER`."""
    if "failed" in row:
        return _pipe([row["attention"], "failed"])
    return _pipe(peer_cells(row))


def peer_cells(row: Row) -> list[str]:
    """The cells of a row, below `PEER_TITLES`."""
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


def means(rows: Iterable[Row]) -> list[str]:
    """Geometric means of both ratios, PyTorch's time over ours, and the smallest."""
    rows, lines = list(rows), []
    for title, key in (("medians", "ratio"), ("fastest turns", "fastest_ratio")):
        ratios = [row[key] for row in rows]
        mean = statistics.geometric_mean(ratios)
        lines.append(f"ratio of {title}: geometric mean {mean:.2f}, smallest {min(ratios):.2f}")
    return lines
