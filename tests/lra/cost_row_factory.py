"""Rows of cost for tests: everything a row needs, whatever a test does not care about filled in."""

from typing import Any

from lra.efficiency import CostRow

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
    label, options = f"linformer-{size}", {"proj_dim": size}
    return cost_row(*costs, method="linformer", label=label, options=options, **values)
