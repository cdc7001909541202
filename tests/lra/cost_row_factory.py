"""Rows of cost for tests, with whatever a test does not care about; what is made of them."""

from typing import Any

from lra.efficiency import CostRow
from lra.report.costs import sections
from lra.report.costs.sheets import Sheet, sheets
from lra.report.sections import Section
from lra.report.table import Table

STANDARD = {"method": "standard", "label": "standard (xla)", "options": {"implementation": "xla"}}
PEER = {"source": "transformers", "label": "nystrom-64 (transformers)", "memory_source": "process"}


def cost_row(seconds: float | None = 1.0, megabytes: float | None = 10.0, **values: Any) -> CostRow:
    """Nyström with 64 landmarks, measured, unless told otherwise."""
    source = values.get("memory_source", "xla")
    values = {
        "benchmark": "module",
        "method": "nystrom",
        "options": {"num_landmarks": 64},
        "label": "nystrom-64",
        "source": "ours",
        "mode": "forward",
        "length": 1024,
        "batch": 1,
        "dim": 64,
        "heads": 2,
        "head_dim": 32,
        "dtype": "float32",
        "status": "ok",
        "device": "a device",
        "threads": 1,
        "run": "one",
        "finished": "2026-01-01T00:00:00+00:00",
        "seconds": seconds,
        "peak_memory_mb": megabytes,
        "memory_source": source if megabytes else None,
        f"{source}_memory_mb": megabytes,
    } | values
    if not megabytes:
        values["memory_source"] = None
    if values["status"] != "ok":
        values.setdefault("note", "a reason")
    return CostRow(**values)


def standard(seconds: float | None = 3.0, megabytes: float | None = 40.0, **values) -> CostRow:
    return cost_row(seconds, megabytes, **STANDARD, **values)


def linformer(size: int, *costs, **values) -> CostRow:
    names = {"method": "linformer", "label": f"linformer-{size}", "options": {"proj_dim": size}}
    return cost_row(*costs, **names | values)


def only(rows) -> Sheet:
    """The sheet of rows that make up one."""
    ((sheet,),) = sheets(rows).values()
    return sheet


def sections_of(rows) -> list[Section]:
    """The sections of a report of these rows."""
    settings = sheets(rows)
    return sections.sections(settings, sections.figures(settings))


def line(table: Table, title: str = "Nyströmformer-64") -> list[str]:
    """The cells of a line that have something to say."""
    found = next(line for line in table.lines if line[0] == title)
    return [text for text in found[1:] if text != "–"]
