"""Rows of `benchmarks.train_step`, `torch_train_step` and `first_steps`.

One JSON object per line, appended durably and sealed as in `lra.records`. A row is a dictionary.
The dataclasses below define its fields; those without a default are required.
"""

import dataclasses
import functools
import os
from typing import Any

from lra import records
from lra.errors import UserError
from lra.fields import check_fields, dump, load

StepValues = dict[str, Any]  # a row: its values by field

_WHAT = "row of a training step"
# Reports divide by these, or take their logarithms.
_DIVISORS = (
    "seeds",
    "batch",
    "steps_per_second",
    "examples_per_second",
    "eval_examples_per_second",
    "peak_flops_per_second",
    "num_devices",
    "ratio",
    "fastest_ratio",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CaseRow:
    """What rows of `benchmarks.train_step` have in common: case and environment."""

    task: str
    attention: str
    seeds: int
    dtype: str
    batch: int
    device: str
    deterministic: bool
    overrides: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepRow(_CaseRow):
    """Row of `benchmarks.train_step`.

    Attributes:
        task, attention, seeds, dtype, batch, overrides: Case, as in `train_case.TrainCase`.
        device, num_devices, commit, versions, deterministic, matmul_precision: Environment.
        compile_seconds, eval_compile_seconds, other_compile_seconds: Compile time of training, of
            evaluation and of the smaller programs.
        steps_per_second: Training steps per second, each of all seeds together.
        examples_per_second, eval_examples_per_second: Examples per second, summed over seeds.
        peak_memory_mb: Peak memory in 10^6 bytes, of the device or, on a CPU, of the process.
        real_flops_per_step: Floating-point operations in the model's matrix products, for the real
            tokens of all seeds.
        flops_per_step: The same in older rows, where padding counts too, unless it is cut before a
            step.
        peak_flops_per_second: Rate of a large matrix product on one device.
        protocol_hours, whole_hours: Hours of the protocol's training and evaluations, without and
            with compilation; None if the batch size is not the protocol's.
        cost_against_one_seed: Step time relative to that of one seed, if both were measured.
        compiled_beside: Number of other cases that compiled at the same time, in their own
            processes.
    """

    num_devices: int
    commit: str
    versions: dict
    matmul_precision: str
    compile_seconds: float
    eval_compile_seconds: float
    other_compile_seconds: float
    steps_per_second: float
    examples_per_second: float
    eval_examples_per_second: float
    peak_memory_mb: float
    peak_flops_per_second: float
    real_flops_per_step: int | None = None
    flops_per_step: int | None = None
    protocol_hours: float | None = None
    whole_hours: float | None = None
    cost_against_one_seed: float | None = None
    compiled_beside: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialRow(_CaseRow):
    """Row of `benchmarks.train_step --largest_batch`.

    Attributes:
        task, attention, seeds, dtype, batch, overrides: Case, as in `train_case.TrainCase`.
        device, deterministic: Environment.
        fits: Whether the batch fits in the memory of the device.
        why: Why it does not; None if it does.
        needed_mb: Memory that the compiled program needs, in 10^6 bytes, if known.
        seconds_per_step, examples_per_second: Speed of a batch that fits.
    """

    fits: bool
    why: str | None = None
    needed_mb: float | None = None
    seconds_per_step: float | None = None
    examples_per_second: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerRow:
    """Row of `benchmarks.torch_train_step`.

    Attributes:
        task, attention, length, batch: Case; all examples have the full length.
        threads: Number of CPU threads of each side.
        steps: Number of steps per turn.
        device, commit, versions: Environment.
        ours, torch: Measurements of each side: milliseconds per step (median over turns, and of the
            fastest turn), number of parameters, and peak memory of its process in 10^6 bytes.
        ratio, fastest_ratio: PyTorch's time divided by ours, of medians and of fastest turns.
        compiled: Whether the peer was compiled with torch.compile.
    """

    task: str
    attention: str
    length: int
    batch: int
    threads: int
    steps: int
    device: str
    commit: str
    versions: dict
    ours: dict
    torch: dict
    ratio: float
    fastest_ratio: float
    compiled: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossRow:
    """Row of `benchmarks.first_steps`.

    Attributes:
        task, attention: Case.
        examples, batch, learning_rate: Number of training examples, batch size, learning rate.
        losses: Mean loss of each epoch; None where it is not finite.
        device, commit, versions: Environment.
    """

    task: str
    attention: str
    examples: int
    batch: int
    learning_rate: float
    losses: list
    device: str
    commit: str
    versions: dict


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Side:
    milliseconds: float
    fastest: float
    params: int
    peak_memory_mb: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Failure:
    """Row of a case that could not be measured."""

    task: str
    attention: str
    failed: bool
    seeds: int | None


def append(path: str | os.PathLike, row: StepValues, kind: type) -> None:
    """Append a row of class `kind` durably.

    Raises:
        UserError: If the file cannot be written, or the row or a line before the last is not valid.
    """
    line = dump(row)
    _parse(line.encode(), kind)  # a row that cannot be read would block the file
    records.append_new(path, lambda present: [line], functools.partial(_parse, kind=kind))


def check(path: str | os.PathLike | None, kind: type) -> None:
    """Raise what `append` would raise, before anything is measured; do nothing for None."""
    if path is not None:
        records.check_writable(path)
        records.append_new(path, lambda present: [], functools.partial(_parse, kind=kind))


def read(path: str | os.PathLike, kind: type) -> list[StepValues]:
    """Read the rows of a file in order; those of failed cases have the field `failed`.

    Args:
        path: Path of the file.
        kind: Class of its rows: `StepRow`, `TrialRow`, `PeerRow` or `LossRow`.

    Raises:
        UserError: If there is no such file, or a line is not such a row (the message names file and
            line).
    """
    return records.read(path, functools.partial(_parse, kind=kind))


def _parse(line: bytes, kind: type) -> StepValues:
    values = load(line)
    if not isinstance(values, dict):
        raise UserError("not a row of a training step: no object")
    if "failed" in values:
        if values["failed"] is not True:
            raise UserError(f"not a {_WHAT}: failed is true where it is given")
        check_fields({name: values.get(name) for name in _Failure.__annotations__}, _Failure, _WHAT)
        return values
    check_fields(values, kind, _WHAT)
    if kind is PeerRow:
        for side in ("ours", "torch"):
            check_fields(values[side], _Side, f"{_WHAT}: {side}")
    texts = [*values.get("overrides", ()), *values.get("versions", {}).values()]
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"not a {_WHAT}: overrides and versions are texts")
    zero = [name for name in _DIVISORS if values.get(name) == 0]
    if zero:
        raise UserError(f"not a {_WHAT}: {zero[0]} cannot be 0")
    return values
