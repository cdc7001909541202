"""One row: what one seed of one run has shown, and its line of JSON."""

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
# What rows of a run that changed devices say of the last alone.
OF_LAST_DEVICE = ("num_devices", "examples_per_second", "peak_memory_mb")
# The keys of a configuration that set the number format.
NUMBER_FORMAT = ("dtype", "matmul_precision")

Key = tuple[str, str, str, int, str, str]


def now() -> str:
    """The time in UTC, as ISO has it, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One seed of one run.

    Attributes:
        task: name of the task.
        attention: name of the attention.
        seed: of this row.
        protocol: `table3` or `changed: ...` (`lra.protocol.protocol_of`).
        data: mark of the data: `official`, `generated`, `differs (...)` or the user's own.
        status: `ok`, `diverged` (frozen at `diverged_step`, no accuracy) or `failed` (the process
            ended without a result; `error` says why).
        steps: training steps made; if every seed diverged, those up to the last divergence; of a
            failed run, those asked for.
        dtype, matmul_precision: number formats of the run.
        config: every key of the configuration, flat.
        config_overrides: those that differ from the task's defaults; seeds, mesh, steps per
            call and checkpoint interval aside.
        data_sha256: of the whole data set.
        val_is_test: whether the validation set, which chooses the parameters, is the test set.
        test_accuracy: a fraction, with the parameters that were best on the validation set.
        val_accuracy: of those parameters, on the validation set.
        test_accuracy_last: with the parameters after the last step: no selection.
        best_step: step of the best parameters.
        diverged_step: first step whose loss or gradient was not finite, counted from 0; the number
            of steps if only the parameters after the last one gave no finite loss.
        error: why a run failed, one line.
        params: number of trained parameters.
        deterministic: whether the same program, with the same starts, gives the same bits again;
            None if that is not known of all of them.
        device: what it ran on; of a run that went on elsewhere all of it, `4 x A, B`.
        num_devices: of the last start.
        seeds_in_program: seeds trained together in this program.
        examples_per_second: training examples per second, over all seeds of the program, since
            it came to the last of its devices; None where it made too few steps there.
        peak_memory_mb: of the program, in 10^6 bytes, the most of its starts there.
        wall_seconds: of the whole program, summed over its starts.
        commit: of the code; of a run that went on with other code all of them, `A, B`.
        versions: of the packages, likewise.
        finished: ISO time in UTC.
        schema: version of this list.
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
        """Whether this is a result; a failed run may be tried again."""
        return self.status != "failed"

    @property
    def moved(self) -> bool:
        """Whether the run went on with other devices, or another number of them."""
        return SEPARATOR in (self.device or "")

    @property
    def devices(self) -> str:
        """What it ran on, for a reader: `4 x a device`, `4 x A + B` of a run that moved."""
        if self.moved:
            return self.device.replace(SEPARATOR, " + ")
        many = f"{self.num_devices} x " if (self.num_devices or 1) > 1 else ""
        return f"{many}{self.device or 'unknown device'}"


def key(row: Row) -> Key:
    """What makes a row the same as another: task, attention, overrides, seed, protocol, data."""
    return make_key(row.task, row.attention, row.config_overrides, row.seed, row.protocol, row.data)


def make_key(
    task: str, attention: str, overrides: dict[str, Any], seed: int, protocol: str, data: str
) -> Key:
    """The key of a row that may not exist yet; seeds among the overrides do not count."""
    rest = {name: value for name, value in overrides.items() if name != "seeds"}
    return task, attention, json.dumps(rest, sort_keys=True), seed, protocol, data


def without_number_format(overrides: dict[str, Any]) -> dict[str, Any]:
    """The overrides but for those that set the number format."""
    return {name: value for name, value in overrides.items() if name not in NUMBER_FORMAT}


def latest(rows: Iterable[Row]) -> list[Row]:
    """One row for each key: its first result or, without one, its last failure; order is kept."""
    chosen: dict[Key, Row] = {}
    for row in rows:
        name = key(row)
        if name not in chosen or not chosen[name].final:
            chosen.pop(name, None)  # so that the row keeps its own place, not that of a failure
            chosen[name] = row
    return list(chosen.values())


def to_json(row: Row) -> str:
    """One line of JSON, without its line break.

    Raises:
        UserError: values that a row cannot have.
    """
    values = dataclasses.asdict(row)
    _check(values)
    return dump(values)


def from_json(line: str | bytes) -> Row:
    """The inverse of `to_json`; lines of older schemas, or of none, are brought up to date.

    Raises:
        ValueError: not JSON.
        UserError: JSON, but not a row.
    """
    return from_values(load(line))


def from_values(values: Any) -> Row:
    """The row that a line of JSON holds; raises UserError if it is none."""
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
    """Adds what schema 0 lacks; only Text without holdout validated on the test set then."""
    overrides = values.get("config_overrides") or {}
    is_test = values.get("task") == "text" and not overrides.get("data.holdout")
    added = {"val_is_test": is_test, "config": {}, "schema": 1}
    return added | {name: value for name, value in values.items() if name != "schema"}


_FRACTIONS = ("test_accuracy", "val_accuracy", "test_accuracy_last")
# What a row of each status must have, and what it must not.
_HAS = {
    "ok": (*_FRACTIONS, "best_step", "params"),
    "diverged": ("params",),
    "failed": ("error",),
}
_HAS_NOT = {
    "ok": ("diverged_step", "error"),
    "diverged": (*_FRACTIONS, "best_step", "error"),
    "failed": (*_FRACTIONS, "best_step", "diverged_step"),
}


def _check(values: dict[str, Any]) -> None:
    """Raises UserError for names, types and ranges that a row cannot have."""
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
    wrong = unfitting(values, _HAS, _HAS_NOT)
    if wrong:
        raise UserError(f"not a row: {wrong[0]} does not fit status '{status}'")
