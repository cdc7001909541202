"""Rows of cost: what one method took in one case, one line of JSON each.

`benchmarks.speed_memory` writes them, `lra.report` renders them. They may share a file with rows
of accuracy (`lra.row`), from which `kind` tells them apart. Times are compared within one `run`.
"""

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

from lra import records
from lra.errors import UserError
from lra.fields import check_fields, dump, load, unfitting
from lra.row import Row, now
from lra.row import from_values as row_from_values

SCHEMA = 1
KIND = "cost"
BENCHMARKS = ("module", "model", "fixed_tokens")
MODES = ("forward", "forward_backward")
DTYPES = ("float32", "bfloat16")
STATUSES = ("ok", "extrapolated", "out_of_memory", "unsupported")
MEMORY_SOURCES = ("xla", "device", "process")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CostRow:
    """One method in one case.

    Attributes:
        benchmark: `module` (projections and attention, one instance: Nyströmformer Table 1),
            `model` (a training step of the two-layer encoder on Text: LRA's efficiency table) or
            `fixed_tokens` (as `module`, with batch = tokens / length: Linformer Figure 2).
        method: name of the attention in the registry; of a peer, what it implements.
        options: of the attention, as given.
        label: what tables and plots call it; no two methods of a run share one.
        source: `ours` or the PyPI distribution that was measured.
        mode: `forward` (no gradients) or `forward_backward` (gradients of all parameters and of
            the input). A `model` is always trained: `forward_backward`.
        length, batch, dim, heads, head_dim: sizes; dim is the width of input and output.
        filled: whether the batch was chosen to fill the device, for this method and length alone;
            compare seconds / batch.
        dtype: of activations.
        status: `ok`, `extrapolated` (seconds from shorter lengths, memory too unless XLA's
            analysis gave it), `out_of_memory` (predicted, and not run: peak_memory_mb is the
            estimate and exceeds the limit; or tried) or `unsupported`.
        note: why a status is not `ok`, or what was different.
        seconds, seconds_min, seconds_max: median, least and most of `repeats` calls.
        repeats: number of timed calls.
        peak_memory_mb: 10^6 bytes that a call needs at once, parameters and inputs included.
        memory_source: where `peak_memory_mb` comes from: XLA's analysis of the compiled program,
            the device's statistics, or the growth of the process. XLA's is exact for what the
            program reserves; the process's also sees what libraries take beside it, and may fall
            short on a busy machine.
        xla_memory_mb, process_memory_mb, device_memory_mb: every figure that was taken.
        flops, bytes_accessed: of a call, from the compiled program (`benchmarks.hlo_cost`); None
            where they cannot be told. Of what takes memory that XLA does not see (memory_source is
            `process`), bytes_accessed are too few.
        flops_per_second, bytes_per_second: those over `seconds`.
        peak_flops_per_second, peak_bytes_per_second: of a large matrix product and of a large
            copy on this device, in this dtype and run.
        parts: in how many a `model` took the batch (`lra.parts`), which bounds its memory; None:
            of older rows and of modules, which take it as a whole.
        largest_batch: the largest batch that fits in `memory_limit_mb` (Linformer Table 3).
        memory_limit_mb: what counts as fitting.
        matmul_precision: of float32 products; `float32` is exact on every device.
        threads: CPU threads that the run was held to; None = all.
        device: what it ran on.
        run: of the invocation.
        versions: of the packages.
        commit: of the code.
        finished: ISO time in UTC.
        kind, schema: of this list.
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
    """Appends rows durably and returns their number; see `lra.records` for what that promises.

    Raises:
        UserError: a damaged file, a row that is not valid, or a path that cannot be written.
    """
    lines = [to_json(row) for row in rows]
    return records.append_new(path, lambda present: lines, either_from_json)


def to_json(row: CostRow) -> str:
    """One line of JSON, without its line break.

    Raises:
        UserError: values that a row cannot have.
    """
    values = dataclasses.asdict(row)
    _check(values)
    return dump(values)


def either_from_json(line: str | bytes) -> Row | CostRow:
    """A row of cost, the inverse of `to_json`, or of accuracy, whichever the line is.

    Raises:
        ValueError: not JSON.
        UserError: JSON, but no row of either kind.
    """
    values = load(line)
    if isinstance(values, dict) and "kind" in values:
        return _from_values(values)
    return row_from_values(values)


def _from_values(values: dict[str, Any]) -> CostRow:
    if values["kind"] != KIND:
        raise UserError(f"not a row of cost: its kind is not '{KIND}'")
    schema = values.get("schema")
    if type(schema) is not int:
        raise UserError("not a row of cost: its schema is missing or no number")
    if schema != SCHEMA:
        raise UserError(f"schema {schema} is unknown, this version reads {SCHEMA}; update the code")
    _check(values)
    return CostRow(**values)


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
# Wider than anything that can be measured, yet reports can divide such numbers and take logarithms.
_RANGES = {
    **dict.fromkeys(_SIZES, (1, 10**12)),
    **dict.fromkeys(_SECONDS, (1e-12, 1e15)),
    **dict.fromkeys(_MEMORIES, (1e-12, 1e15)),
}
# What a row of each status must have, and what it must not.
_HAS = {"ok": (), "extrapolated": ("note",), "out_of_memory": ("note",), "unsupported": ("note",)}
_HAS_NOT = {
    "ok": (),
    "extrapolated": ("seconds_min", "seconds_max", "repeats"),
    "out_of_memory": _TIMES,
    "unsupported": (*_TIMES, "peak_memory_mb"),
}


def _check(values: dict[str, Any]) -> None:
    """Raises UserError for names, types and ranges that a row cannot have."""
    check_fields(values, CostRow, "row of cost")
    for name, choices in _CHOICES.items():
        if name in values and values[name] not in choices:
            raise UserError(f"not a row of cost: {name} cannot be {values[name]!r}")
    _check_ranges(values)
    status = values["status"]
    wrong = unfitting(values, _HAS, _HAS_NOT)
    if status in ("ok", "extrapolated") and all(
        values.get(name) is None for name in ("seconds", "peak_memory_mb")
    ):
        wrong.append("seconds")
    if (values.get("peak_memory_mb") is None) != (values.get("memory_source") is None):
        wrong.append("memory_source")
    if wrong:
        raise UserError(f"not a row of cost: {wrong[0]} does not fit status '{status}'")


def _check_ranges(values: dict[str, Any]) -> None:
    """Raises UserError for sizes, times and memories that nothing measures."""
    for name, (least, most) in _RANGES.items():
        value = values.get(name)
        if value is None or least <= value <= most:
            continue
        if value == 0 and name in _MEMORIES:  # a process may grow by nothing
            continue
        raise UserError(
            f"not a row of cost: {name} cannot be {value:.4g}, only {least:g} to {most:g}"
        )
