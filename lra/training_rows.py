"""Rows of training steps: of `benchmarks.train_step`, `torch_train_step` and `first_steps`.

One JSON object a line, appended durably and sealed as `lra.records` does. A row is a dictionary;
the fields of the classes below say which values it has: those without a default are required.
"""

import dataclasses
import functools
import os
from typing import Any

from lra import records
from lra.errors import UserError
from lra.fields import check_fields, dump, load

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepRow:
    """A case of `benchmarks.train_step`.

    Attributes:
        task, attention, seeds, dtype, batch, overrides: the case, as `train_case.TrainCase` has it.
        device, num_devices, commit, versions, deterministic, matmul_precision: what it ran on.
        compile_seconds, eval_compile_seconds, other_compile_seconds: of training, of evaluation
            and of the smaller programs.
        steps_per_second: of all seeds together.
        examples_per_second, eval_examples_per_second: summed over seeds.
        peak_memory_mb: 10^6 bytes, of the device or, on a CPU, of the process.
        real_flops_per_step: in the matrix products of the model, of all seeds, for real tokens.
        flops_per_step: in older rows instead: padding counts too, unless it is cut before a step.
        peak_flops_per_second: of a large matrix product on one device.
        protocol_hours, whole_hours: of the protocol's training and evaluations, and with
            compilation; None with another batch than the protocol's.
        cost_against_one_seed: a step's time over that of one seed, where both were measured.
        compiled_beside: other cases that compiled at the same time, each in a process of its own.
    """

    task: str
    attention: str
    seeds: int
    dtype: str
    batch: int
    device: str
    num_devices: int
    commit: str
    versions: dict
    deterministic: bool
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
    overrides: list = dataclasses.field(default_factory=list)
    protocol_hours: float | None = None
    whole_hours: float | None = None
    cost_against_one_seed: float | None = None
    compiled_beside: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerRow:
    """An attention of `benchmarks.torch_train_step`.

    Attributes:
        task, attention, length, batch: the case; all examples have the full length.
        threads: of each side.
        steps: in a turn.
        device, commit, versions: what it ran on.
        ours, torch: each side's milliseconds a step (median of turns), that of its fastest turn,
            parameters, and peak memory of its process in 10^6 bytes.
        ratio, fastest_ratio: PyTorch's time over ours, of medians and of fastest turns.
        compiled: whether the peer went through torch.compile.
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
    """A task and attention of `benchmarks.first_steps`.

    Attributes:
        examples, batch, learning_rate: of the training.
        losses: the mean of each epoch; None where it is infinite or no number.
        device, commit, versions: what it ran on.
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
    """A case that could not be measured, with what is known of it."""

    task: str
    attention: str
    failed: bool
    seeds: int | None


def append(path: str | os.PathLike, row: Row) -> None:
    """Appends a row durably.

    Raises:
        UserError: a path that cannot be written, or a line before the last that is no JSON.
    """
    line = dump(row)
    records.append_new(path, lambda present: [line], load)


def check(path: str | os.PathLike | None) -> None:
    """Raises what `append` would raise, before anything is measured; does nothing for None."""
    if path is not None:
        records.check_writable(path)
        records.append_new(path, lambda present: [], load)


def read(path: str | os.PathLike, kind: type) -> list[Row]:
    """The rows of a file, in order; those of cases that failed have `failed`.

    Args:
        path: of the file.
        kind: `StepRow`, `PeerRow` or `LossRow`.

    Raises:
        UserError: no such file; a line that is no such row (file and line are named).
    """
    return records.read(path, functools.partial(_parse, kind=kind))


def _parse(line: bytes, kind: type) -> Row:
    values = load(line)
    if not isinstance(values, dict):
        raise UserError("not a row of a training step: no object")
    if "failed" in values:
        check_fields({name: values.get(name) for name in _fields(_Failure)}, _Failure, _WHAT)
        return values
    check_fields(values, kind, _WHAT)
    if kind is PeerRow:
        for side in ("ours", "torch"):
            check_fields(values[side], _Side, f"{_WHAT}: {side}")
    texts = [*values.get("overrides", ()), *values["versions"].values()]
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"not a {_WHAT}: overrides and versions are texts")
    zero = [name for name in _DIVISORS if values.get(name) == 0]
    if zero:
        raise UserError(f"not a {_WHAT}: {zero[0]} cannot be 0")
    return values


_WHAT = "row of a training step"
# Reports divide by these, or take their logarithms.
_DIVISORS = (
    "steps_per_second",
    "examples_per_second",
    "peak_flops_per_second",
    "num_devices",
    "ratio",
    "fastest_ratio",
)


def _fields(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]
