"""Prepared data of a sweep, and generation of data that are missing."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

from lra.data import prepare as preparing
from lra.data import prepared
from lra.data.request import MODULES, check_request, module_of
from lra.data.summary import megabytes
from lra.errors import UserError, of_system
from lra.near_names import near_match
from lra.row import LRA_DATA
from lra.stderr import say

_FORM = "{'TASK': {'FLAG': value, ...}}"


def check(wanted: Any) -> None:
    """Raise UserError if `wanted`, the `DATA` of a sweep file, is malformed.

    This includes unknown tasks, and flags or values that `lra.data.prepare` does not accept.
    """
    if not isinstance(wanted, dict):
        raise UserError(f"DATA is not of the form {_FORM}: {wanted!r}")
    for task, flags in wanted.items():
        if task not in MODULES:
            raise UserError(f"DATA: unknown task {task!r}{near_match(str(task), MODULES)}")
        if not isinstance(flags, dict):
            raise UserError(f"DATA of {task} is not of the form {_FORM}: {flags!r}")
        try:
            check_request(task, flags)
            if _can_generate(task):  # flags that contradict each other
                preparing.estimate_task(task, ".", source="generate", **flags)
        except UserError as error:
            hint = f"python -m lra.data.prepare {task} --help shows the flags"
            raise UserError(f"DATA of {task}: {error}; {hint}") from None


def _can_generate(task: str) -> bool:
    return "generate" in module_of(task).SOURCES


@dataclasses.dataclass(frozen=True)
class Data:
    """The prepared data of a sweep.

    Attributes:
        folder: Data folder, with one subfolder per task.
        wanted: Flags of `lra.data.prepare` that the sweep asks for, by task.
    """

    folder: str
    wanted: dict[str, dict[str, Any]]

    def mark(self, task: str) -> str | None:
        """Return the data mark of `task`, which its rows repeat as `data`; None if not prepared.

        Raises:
            UserError: The data are damaged, cannot be read, or were prepared with other flags.
        """
        manifest = self._manifest(task)
        if manifest is None:
            return None
        used = manifest.get("request") or {}
        for name, value in self._flags(task).items():
            if used.get(name) != value:
                raise UserError(
                    f"the sweep wants {task} with {name}={value}, that in {self.folder} has "
                    f"{used.get(name, 'another source')}; choose another --data_dir"
                )
        return manifest["data"]

    def sha256(self, task: str) -> str | None:
        """Return the hash of the prepared data; None if there are none, or damaged ones."""
        with contextlib.suppress(UserError):
            if (manifest := self._manifest(task)) is not None:
                return manifest["sha256"]
        return None

    def _manifest(self, task: str) -> dict[str, Any] | None:
        """Return the manifest of the prepared data, None if there are none."""
        try:
            return prepared.load(self.folder, task, check_hashes=False).manifest
        except UserError:
            if (pathlib.Path(self.folder) / task / prepared.MANIFEST).exists():
                raise
            return None
        except OSError as error:
            raise UserError(f"{of_system(error)}; choose another --data_dir") from None

    def takes(self, task: str) -> Callable[[str], bool]:
        """Return a predicate of data marks: whether they are of this sweep's data of `task`.

        For prepared data, only their mark is accepted. For data still to be generated, only the
        mark that their flags lead to (without flags, also `official`) is accepted; for data that
        cannot be generated, every mark.
        """
        with contextlib.suppress(UserError):
            if (prepared_mark := self.mark(task)) is not None:
                return lambda mark: mark == prepared_mark
        flags = self._flags(task)
        if not _can_generate(task):
            return lambda mark: True
        if not flags:
            return lambda mark: mark in LRA_DATA
        expected = preparing.generated_mark(task, flags)
        return lambda mark: mark == expected

    def note(self, task: str, mark: str | None) -> str | None:
        """Return a line on prepared data that are neither LRA's nor asked for by the sweep."""
        if mark is None or mark in LRA_DATA or self._flags(task):
            return None
        return f"{task}: the data in {self.folder} are not LRA's: {mark}"

    def seconds_to_generate(self, task: str) -> float:
        """Estimate the seconds to generate the missing data of `task`.

        Raises:
            UserError: This task cannot be generated.
        """
        return self._estimate(task).seconds

    def estimate_line(self, task: str) -> str:
        """Return a line that says what generating the missing data of `task` takes."""
        size, seconds = self._estimate(task)
        cost = f"about {megabytes(size)} and {seconds:,.0f} s"
        return f"{task}: its data will be generated in {self.folder}, {cost}"

    def _estimate(self, task: str) -> prepared.Estimate:
        if not _can_generate(task):
            prepared.load(self.folder, task)  # raises: the message says how to prepare it
        flags = self._flags(task)
        return preparing.estimate_task(task, self.folder, source="generate", **flags)

    def generate(self, task: str) -> str:
        """Generate the data of `task` and return their mark.

        Data that another process has prepared in the meantime are kept and used.

        Raises:
            UserError: Such data were prepared with other flags, or preparation fails.
        """
        say(f"generating {task} in {self.folder}")
        flags = self._flags(task)
        preparing.prepare_task(task, self.folder, replace=False, source="generate", **flags)
        return self.mark(task)

    def _flags(self, task: str) -> dict[str, Any]:
        return self.wanted.get(task, {})
