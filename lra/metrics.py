"""metrics.jsonl: a line of JSON for each training call and each evaluation of a run."""

import contextlib
import json
import pathlib
from typing import Any

from lra.files import naming, write_atomically

KINDS = ("train", "eval")  # of a line: a training call, an evaluation
# Largest step, and largest metric, which is a float32.
MAX_STEP, _MAX_METRIC = 2**63 - 1, 3.4028234663852886e38


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    """Read the lines of a metrics.jsonl, skipping invalid ones (a kill truncates lines)."""
    metrics = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(line)
            if _is_metric(values):
                metrics.append(values)
    return metrics


def _is_metric(values: Any) -> bool:
    """Whether the values of a line are valid; damage may change any number."""
    if not isinstance(values, dict) or values.get("kind") not in KINDS:
        return False
    series = [values.get(name) for name in ("loss", "accuracy")]
    step, speed = values.get("step"), values.get("examples_per_second", 0)
    return (
        type(step) is int
        and 0 <= step <= MAX_STEP
        and is_number(speed)
        and speed >= 0
        and all(map(_is_series, series))
        and len(series[0]) == len(series[1])
    )


def _is_series(values: Any) -> bool:
    """Whether this is a list of one number per seed, or None for a diverged seed."""
    return isinstance(values, list) and all(value is None or is_number(value) for value in values)


def is_number(value: Any) -> bool:
    """Whether this is a number that fits in a float32, and not NaN."""
    return type(value) in (int, float) and -_MAX_METRIC <= value <= _MAX_METRIC


class Metrics:
    """Writer of metrics.jsonl, which flushes after each line."""

    def __init__(self, path: pathlib.Path, step: int, evaluated: int):
        """Open the file, dropping lines after step `step` and after the evaluation at `evaluated`.

        Such lines were written by a process that was killed before its next checkpoint.
        """
        kept = [
            values
            for values in (read_metrics(path) if path.exists() else [])
            if values["step"] <= (evaluated if values["kind"] == "eval" else step)
        ]
        write_atomically(path, "".join(f"{json.dumps(values)}\n" for values in kept))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115, closed by `close`

    def write(self, **values: Any) -> None:
        """Append one line."""
        with naming(self._file.name):
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with naming(self._file.name):
            self._file.close()
