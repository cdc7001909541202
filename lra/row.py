"""Rows of accuracy: the result of one seed of one run, and its line of JSON."""

import dataclasses
import datetime
import json
from collections.abc import Iterable
from typing import Any

from lra.errors import UserError
from lra.fields import can_be_shown, check_fields, dump, load, unfitting

SCHEMA = 1
STATUSES = ("ok", "diverged", "failed")
SEPARATOR = ", "  # between the commits, versions or devices of a run that changed them
# Fields that describe only the last device of a run that changed devices.
OF_LAST_DEVICE = ("num_devices", "examples_per_second", "peak_memory_mb")
# Config keys that set the number format.
NUMBER_FORMAT = ("dtype", "matmul_precision")

Key = tuple[str, str, str, int, str, str]


def now() -> str:
    """Current time in UTC, in ISO format, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Result of one seed of one run.

    Attributes:
        task: Name of the task.
        attention: Name of the attention.
        seed: Seed of this row.
        protocol: `table3` or `changed: ...` (`lra.protocol.protocol_of`).
        data: Origin of the data: `official`, `generated`, `differs (...)` or the user's own.
        status: `ok`, `diverged` (frozen at `diverged_step`, no accuracy) or `failed` (the process
            ended without a result; `error` says why).
        steps: Number of training steps made; if every seed diverged, up to the last divergence; of
            a failed run, the number configured.
        dtype, matmul_precision: Number formats of the run.
        config: Flat configuration with every key.
        config_overrides: Keys that differ from the task's defaults, without seeds, mesh, steps per
            call and checkpoint interval.
        data_sha256: SHA-256 of the whole data set.
        val_is_test: Whether the validation set, which selects the parameters, is the test set.
        test_accuracy: Test accuracy, a fraction, of the parameters with the highest validation
            accuracy.
        val_accuracy: Validation accuracy of those parameters.
        test_accuracy_last: Test accuracy of the parameters after the last step: no selection.
        best_step: Step of the best parameters.
        diverged_step: First step whose loss or gradient was not finite, counted from 0; the number
            of steps if only the parameters after the last step gave no finite loss.
        error: Why a run failed, in one line.
        params: Number of trained parameters.
        deterministic: Whether repeating the run, process by process, gives the same bits; None if
            that is unknown for any of its processes.
        device: Device of the run, or all devices of a run that changed them, `4 x A, B`.
        num_devices: Number of devices of the last process.
        seeds_in_program: Number of seeds trained together in one program.
        examples_per_second: Training examples per second, over all seeds of the program, on the
            last devices of the run; None if it made too few steps there.
        peak_memory_mb: Peak memory of the program on those devices in 10^6 bytes, over all its
            processes.
        wall_seconds: Wall time of the whole program, summed over its processes.
        commit: Commit of the code, or all commits of a run that changed it, `A, B`.
        versions: Versions of the packages, likewise.
        finished: Time of completion, ISO format in UTC.
        schema: Version of this list of fields.
    """

    task: str
    attention: str
    seed: int
    protocol: str
    data: str
    status: str
    steps: int
    dtype: str
    matmul_precision: str
    config: dict
    config_overrides: dict
    data_sha256: str | None = None
    val_is_test: bool = False
    test_accuracy: float | None = None
    val_accuracy: float | None = None
    test_accuracy_last: float | None = None
    best_step: int | None = None
    diverged_step: int | None = None
    error: str | None = None
    params: int | None = None
    deterministic: bool | None = None
    device: str | None = None
    num_devices: int | None = None
    seeds_in_program: int | None = None
    examples_per_second: float | None = None
    peak_memory_mb: float | None = None
    wall_seconds: float | None = None
    commit: str | None = None
    versions: dict | None = None
    finished: str = dataclasses.field(default_factory=now)
    schema: int = SCHEMA

    @property
    def final(self) -> bool:
        """Whether this is a final result; a failed run may be tried again."""
        return self.status != "failed"

    @property
    def moved(self) -> bool:
        """Whether the run was resumed on other devices, or another number of them."""
        return SEPARATOR in (self.device or "")

    @property
    def devices(self) -> str:
        """Devices of the run for display: `4 x A`, or `4 x A + B` if it moved."""
        if self.moved:
            return self.device.replace(SEPARATOR, " + ")
        count = f"{self.num_devices} x " if (self.num_devices or 1) > 1 else ""
        return f"{count}{self.device or 'unknown device'}"


def key(row: Row) -> Key:
    """Identity of a row: task, attention, overrides, seed, protocol, data."""
    return make_key(row.task, row.attention, row.config_overrides, row.seed, row.protocol, row.data)


def make_key(
    task: str, attention: str, overrides: dict[str, Any], seed: int, protocol: str, data: str
) -> Key:
    """Make the key of a row that may not exist yet; `seeds` among the overrides is ignored."""
    rest = {name: value for name, value in overrides.items() if name != "seeds"}
    return task, attention, json.dumps(rest, sort_keys=True), seed, protocol, data


def without_number_format(overrides: dict[str, Any]) -> dict[str, Any]:
    """Overrides other than those that set the number format."""
    return {name: value for name, value in overrides.items() if name not in NUMBER_FORMAT}


def latest(rows: Iterable[Row]) -> list[Row]:
    """One row per key, in order: its first result or, without one, its last failure."""
    by_key: dict[Key, Row] = {}
    for row in rows:
        row_key = key(row)
        if row_key not in by_key or not by_key[row_key].final:
            by_key.pop(row_key, None)  # so that the row keeps its own place, not that of a failure
            by_key[row_key] = row
    return list(by_key.values())


def to_json(row: Row) -> str:
    """Serialise a row as one line of JSON, without line break.

    Raises:
        UserError: If the row is not valid.
    """
    values = dataclasses.asdict(row)
    _check(values)
    return dump(values)


def from_json(line: str | bytes) -> Row:
    """Parse a row, the inverse of `to_json`; older schemas, or none, are upgraded.

    Raises:
        ValueError: If the line is not JSON.
        UserError: If it is JSON, but not a valid row.
    """
    return from_values(load(line))


def from_values(values: Any) -> Row:
    """Make a row from the values of a line of JSON; raises UserError if they are not valid."""
    if not isinstance(values, dict):
        raise UserError("not a row: not an object of JSON")
    schema = values.setdefault("schema", 0)  # a row written by hand has none
    if type(schema) is not int:
        raise UserError("not a row: its schema is no number")
    if schema == 0:
        values = _from_schema_0(values)
    if values["schema"] != SCHEMA:
        raise UserError(
            f"schema {values['schema']} is unknown, this version reads up to {SCHEMA}; "
            "update the code"
        )
    _check(values)
    return Row(**values)


def _from_schema_0(values: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that schema 0 lacks.

    With schema 0, only Text without holdout was validated on the test set.
    """
    overrides = values.get("config_overrides") or {}
    val_is_test = values.get("task") == "text" and not overrides.get("data.holdout")
    added = {"val_is_test": val_is_test, "config": {}, "schema": 1}
    return added | {name: value for name, value in values.items() if name != "schema"}


_FRACTIONS = ("test_accuracy", "val_accuracy", "test_accuracy_last")
# Fields that a row of each status must have, and must not have.
_REQUIRED = {
    "ok": (*_FRACTIONS, "best_step", "params"),
    "diverged": ("params",),
    "failed": ("error",),
}
_FORBIDDEN = {
    "ok": ("diverged_step", "error"),
    "diverged": (*_FRACTIONS, "best_step", "error"),
    "failed": (*_FRACTIONS, "best_step", "diverged_step"),
}


def _check(values: dict[str, Any]) -> None:
    """Raise UserError for invalid field names, types and ranges."""
    check_fields(values, Row, "row")
    for name in _FRACTIONS:
        if (values.get(name) or 0) > 1:
            raise UserError(f"not a row: {name} is a fraction, not {values[name]!r}")
    versions = values.get("versions") or {}
    if not all(isinstance(version, str) for version in versions.values()):
        raise UserError("not a row: versions are text")
    for name in ("config", "config_overrides"):
        if not can_be_shown(values[name]):
            raise UserError(f"not a row: {name} has a number that is none or too large")
    status = values["status"]
    if status not in STATUSES:
        raise UserError(f"not a row: status is one of {', '.join(STATUSES)}, not '{status}'")
    wrong = unfitting(values, _REQUIRED, _FORBIDDEN)
    if wrong:
        raise UserError(f"not a row: {wrong[0]} does not fit status '{status}'")
