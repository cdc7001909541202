"""Rows of cost: time and memory of one method in one case, one line of JSON each.

`benchmarks.speed_memory` writes them, `lra.report` renders them. They may share a file with rows of
accuracy (`lra.row`), from which they are distinguished by `kind`. Only times of the same `run` are
compared.
"""

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

from lra import records
from lra.errors import UserError
from lra.fields import check_fields, dump, load, unfitting
from lra.metrics import KINDS as METRICS_KINDS
from lra.row import Row, now
from lra.row import from_values as row_from_values
from lra.setting_values import DTYPES

SCHEMA = 1
KIND = "cost"
BENCHMARKS = ("module", "model", "fixed_tokens")
MODES = ("forward", "forward_backward")
STATUSES = ("ok", "extrapolated", "out_of_memory", "unsupported")
MEMORY_SOURCES = ("xla", "device", "process")

_CHOICES = {
    "kind": (KIND,),
    "benchmark": BENCHMARKS,
    "mode": MODES,
    "dtype": DTYPES,
    "status": STATUSES,
    "memory_source": (*MEMORY_SOURCES, None),
}
_SECONDS = ("seconds", "seconds_min", "seconds_max")
_TIMES = (*_SECONDS, "repeats")
_SIZES = ("length", "batch", "dim", "heads", "head_dim")
_MEMORIES = ("peak_memory_mb", *(f"{source}_memory_mb" for source in MEMORY_SOURCES))
# Wider than any measurement, but such that reports can divide numbers and take logarithms.
_RANGES = {
    **dict.fromkeys(_SIZES, (1, 10**12)),
    **dict.fromkeys(_SECONDS, (1e-12, 1e15)),
    **dict.fromkeys(_MEMORIES, (1e-12, 1e15)),
}
# Fields that a row of each status must have, and must not have.
_REQUIRED = {
    "ok": (),
    "extrapolated": ("note",),
    "out_of_memory": ("note",),
    "unsupported": ("note",),
}
_FORBIDDEN = {
    "ok": (),
    "extrapolated": ("seconds_min", "seconds_max", "repeats"),
    "out_of_memory": _TIMES,
    "unsupported": (*_TIMES, "peak_memory_mb"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CostRow:
    """Cost of one method in one case.

    Attributes:
        benchmark: `module` (projections and attention, one instance: Nyströmformer Table 1),
            `model` (a training step of the two-layer encoder on Text: LRA's efficiency table) or
            `fixed_tokens` (as `module`, with batch = tokens / length: Linformer Figure 2).
        method: Name of the attention in the registry; for a peer, of the one it implements.
        options: Options of the attention, as given.
        label: Name in tables and plots; no two methods of a run have the same.
        source: `ours` or the PyPI distribution that was measured.
        mode: `forward` (no gradients) or `forward_backward` (gradients of all parameters and of
            the input). A `model` is always trained: `forward_backward`.
        length, batch, dim, heads, head_dim: Sizes; dim is the width of input and output.
        filled: Whether the batch was chosen to fill the device, for this method and length alone;
            compare seconds / batch.
        dtype: Dtype of the activations.
        status: `ok`, `extrapolated` (seconds from shorter lengths, memory too unless XLA's
            analysis gave it), `out_of_memory` (tried; or predicted and not run, in which case
            peak_memory_mb is the estimate and exceeds the limit) or `unsupported`.
        note: Why the status is not `ok`, or what was different.
        seconds, seconds_min, seconds_max: Median, minimum and maximum of `repeats` calls.
        repeats: Number of timed calls.
        peak_memory_mb: Peak memory of a call in 10^6 bytes, parameters and inputs included.
        memory_source: Source of `peak_memory_mb`: XLA's analysis of the compiled program, the
            device's statistics, or the growth of the process. XLA's is exact for what the program
            reserves; that of the process includes what libraries allocate besides, and may be too
            low on a busy machine.
        xla_memory_mb, process_memory_mb, device_memory_mb: All measurements that were taken.
        flops, bytes_accessed: Floating-point operations and memory traffic of a call, from the
            compiled program (`benchmarks.hlo_cost`); None if unknown. If memory_source is
            `process`, some memory is invisible to XLA and bytes_accessed is too low.
        flops_per_second, bytes_per_second: The same, divided by `seconds`.
        peak_flops_per_second, peak_bytes_per_second: Rates of a large matrix product and of a large
            copy on this device, in this dtype and run.
        parts: Number of parts in which a `model` processed the batch (`lra.plan`), which bounds
            its memory; None for older rows, and for modules, which do not divide it.
        largest_batch: Largest batch that fits in `memory_limit_mb` (Linformer Table 3).
        memory_limit_mb: Limit that defines what fits.
        matmul_precision: Precision of float32 products; `float32` is exact on every device.
        threads: Number of CPU threads the run was limited to; None for all.
        device: Device that the run used.
        run: Identifier of the benchmark's invocation.
        versions: Versions of the packages.
        commit: Commit of the code.
        finished: Time of completion, ISO format in UTC.
        kind, schema: Kind of row, and version of this list of fields.
    """

    benchmark: str
    method: str
    options: dict
    label: str
    source: str
    mode: str
    length: int
    batch: int
    dim: int
    heads: int
    head_dim: int
    dtype: str
    status: str
    device: str
    run: str
    filled: bool = False
    note: str | None = None
    seconds: float | None = None
    seconds_min: float | None = None
    seconds_max: float | None = None
    repeats: int | None = None
    peak_memory_mb: float | None = None
    memory_source: str | None = None
    xla_memory_mb: float | None = None
    process_memory_mb: float | None = None
    device_memory_mb: float | None = None
    flops: float | None = None
    bytes_accessed: float | None = None
    flops_per_second: float | None = None
    bytes_per_second: float | None = None
    peak_flops_per_second: float | None = None
    peak_bytes_per_second: float | None = None
    parts: int | None = None
    largest_batch: int | None = None
    memory_limit_mb: float | None = None
    matmul_precision: str | None = None
    threads: int | None = None
    versions: dict | None = None
    commit: str | None = None
    finished: str = dataclasses.field(default_factory=now)
    kind: str = KIND
    schema: int = SCHEMA


def append(path: str | os.PathLike, rows: Iterable[CostRow]) -> int:
    """Append rows durably (see `lra.records`) and return their number.

    Raises:
        UserError: If the file is damaged or cannot be written, or a row is not valid.
    """
    lines = [to_json(row) for row in rows]
    return records.append_new(path, lambda present: lines, either_from_json)


def to_json(row: CostRow) -> str:
    """Serialise a row as one line of JSON, without line break.

    Raises:
        UserError: If the row is not valid.
    """
    values = dataclasses.asdict(row)
    _check(values)
    return dump(values)


def either_from_json(line: str | bytes) -> Row | CostRow:
    """Parse a line that is a row of cost (the inverse of `to_json`) or a row of accuracy.

    Raises:
        ValueError: If the line is not JSON.
        UserError: If it is JSON, but not a valid row of either kind.
    """
    values = load(line)
    if isinstance(values, dict) and "kind" in values:
        return _from_values(values)
    return row_from_values(values)


def _from_values(values: dict[str, Any]) -> CostRow:
    if values["kind"] != KIND:
        what = "not a row of accuracy or cost"
        if values["kind"] in METRICS_KINDS:
            raise UserError(
                f"{what} but of metrics; --curves WORKDIR, the folder of that file, draws them"
            )
        raise UserError(f"{what}: its kind is not '{KIND}'")
    schema = values.get("schema")
    if type(schema) is not int:
        raise UserError("not a row of cost: its schema is missing or no number")
    if schema != SCHEMA:
        raise UserError(f"schema {schema} is unknown, this version reads {SCHEMA}; update the code")
    _check(values)
    return CostRow(**values)


def _check(values: dict[str, Any]) -> None:
    """Raise UserError for invalid field names, types and ranges."""
    check_fields(values, CostRow, "row of cost")
    for name, choices in _CHOICES.items():
        if name in values and values[name] not in choices:
            raise UserError(f"not a row of cost: {name} cannot be {values[name]!r}")
    _check_ranges(values)
    if not values["label"].strip():
        raise UserError("not a row of cost: label is empty")
    status = values["status"]
    wrong = unfitting(values, _REQUIRED, _FORBIDDEN)
    if status in ("ok", "extrapolated") and all(
        values.get(name) is None for name in ("seconds", "peak_memory_mb")
    ):
        wrong.append("seconds")
    if values.get("repeats") == 0 or not _is_sorted(
        values.get(name) for name in ("seconds_min", "seconds", "seconds_max")
    ):
        wrong.append("seconds_min")
    if values["benchmark"] == "model" and values["mode"] != "forward_backward":
        wrong.append("mode")
    if (values.get("peak_memory_mb") is None) != (values.get("memory_source") is None):
        wrong.append("memory_source")
    if wrong:
        raise UserError(f"not a row of cost: {wrong[0]} does not fit status '{status}'")


def _is_sorted(numbers: Iterable[float | None]) -> bool:
    known = [number for number in numbers if number is not None]
    return known == sorted(known)


def _check_ranges(values: dict[str, Any]) -> None:
    """Raise UserError for sizes, times and memories beyond any measurement."""
    for name, (low, high) in _RANGES.items():
        value = values.get(name)
        if value is None or low <= value <= high:
            continue
        if value == 0 and name in _MEMORIES:  # a process may not grow at all
            continue
        raise UserError(
            f"not a row of cost: {name} cannot be {value:.4g}, only {low:g} to {high:g}"
        )
