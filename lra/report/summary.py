"""The first paragraph of a report: how much of Table 3 there is, on which data and devices."""

from collections import defaultdict
from collections.abc import Iterable

from lra.published import TABLE3, TASKS
from lra.report.cells import task_title
from lra.report.groups import Group
from lra.report.provenance import platform_of


def summary(groups: Iterable[Group]) -> str:
    """How many of the published cells have results, of how many seeds; their data and devices.

    Empty if no row is of the table.
    """
    table = next((group for group in groups if group.is_table3), None)
    if table is None:
        return ""
    places = [
        [cell for cell in line.cells.get(task, []) if cell.ok]
        for line in table.lines
        for task in TASKS
        if line.attention in TABLE3
    ]
    filled = [cells for cells in places if cells]
    text = f"Cells of Table 3 with results: {len(filled)} of {len(TABLE3) * len(TASKS)}"
    if not filled:
        return f"{text}."
    seeds = sorted(sum(len(cell.ok) for cell in cells) for cells in filled)
    number = f"{seeds[0]}" if seeds[0] == seeds[-1] else f"{seeds[0]} to {seeds[-1]}"
    rows = [row for cells in filled for cell in cells for row in cell.ok]
    tasks_of: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        tasks_of[row.data][task_title(row.task)] = None
    data = "; ".join(f"{mark} ({', '.join(tasks)})" for mark, tasks in tasks_of.items())
    devices = "; ".join(dict.fromkeys(platform_of(row).title for row in rows))
    seeds_of_each = f"of {number} seed{'s' * (number != '1')} each"
    return f"{text}, {seeds_of_each}. Data: {data}. Devices: {devices}."
