"""Rows for tests: everything a row needs, whatever a test does not care about filled in."""

from typing import Any

from lra.row import Row

CONFIG = {
    "model.attention.num_landmarks": 64,
    "model.attention.proj_dim": 256,
    "model.attention.num_features": 256,
    "model.attention.num_hashes": 2,
}

# Of a run in another number format.
HALF = {"dtype": "bfloat16", "config_overrides": {"dtype": "bfloat16"}}


def make_row(accuracy: float | None = 0.5, **values: Any) -> Row:
    """A row with test accuracy `accuracy`; None for one without results (say its status)."""
    overrides = values.get("config_overrides", {})
    changed = {k: v for k, v in overrides.items() if k not in ("dtype", "matmul_precision")}
    text = ", ".join(f"{name}={value}" for name, value in changed.items())
    defaults: dict[str, Any] = {
        "task": "listops",
        "attention": "nystrom",
        "seed": 0,
        "protocol": f"changed: {text}" if text else "table3",
        "data": "generated",
        "status": "ok",
        "steps": 5000,
        "dtype": "float32",
        "matmul_precision": "float32",
        "config": CONFIG | overrides,
        "config_overrides": overrides,
        "params": 207_000,
        "device": "a device",
        "num_devices": 1,
        "seeds_in_program": 3,
        "examples_per_second": 1000.0,
        "peak_memory_mb": 512.0,
        "wall_seconds": 600.0,
        "finished": "2026-01-01T00:00:00+00:00",
    }
    if accuracy is not None:
        defaults |= {
            "test_accuracy": accuracy,
            "test_accuracy_last": accuracy - 0.01,
            "val_accuracy": accuracy + 0.01,
            "best_step": 4000,
        }
    return Row(**(defaults | values))


def failed_row(error: str = "killed by SIGKILL", **values: Any) -> Row:
    """A row of a run that ended without a result."""
    return make_row(None, status="failed", error=error, params=None, **values)


def diverged_row(step: int = 7, **values: Any) -> Row:
    """A row of a seed that diverged."""
    return make_row(None, status="diverged", diverged_step=step, **values)
