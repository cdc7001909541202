"""The data of a sweep: what is prepared, and preparing what can be generated."""

import contextlib
import dataclasses
import importlib
import pathlib
from collections.abc import Callable
from typing import Any

from lra.command_line import near_match
from lra.data import prepare as preparing
from lra.data import prepared
from lra.errors import UserError, of_system
from lra.stderr import say

_FORM = "{'TASK': {'FLAG': value, ...}}"
_LRA = ("official", "generated")  # marks of LRA's own data, and of those drawn as they were


def check(wanted: Any) -> None:
    """Raises UserError if `wanted`, the `DATA` of a sweep file, is none or names what is not."""
    if not isinstance(wanted, dict):
        raise UserError(f"DATA is not of the form {_FORM}: {wanted!r}")
    for task, flags in wanted.items():
        if task not in preparing.MODULES:
            raise UserError(
                f"DATA: unknown task {task!r}{near_match(str(task), preparing.MODULES)}"
            )
        if not isinstance(flags, dict):
            raise UserError(f"DATA of {task} is not of the form {_FORM}: {flags!r}")
        try:
            preparing.check_request(task, flags)
        except UserError as error:
            cure = f"python -m lra.data.prepare {task} --help shows the flags"
            raise UserError(f"DATA of {task}: {error}; {cure}") from None


def _can_generate(task: str) -> bool:
    return "generate" in importlib.import_module(preparing.MODULES[task]).SOURCES


@dataclasses.dataclass(frozen=True)
class Data:
    """The prepared data of a sweep.

    Attributes:
        folder: with one folder for each task.
        wanted: by task, flags of `lra.data.prepare` that the sweep asks for.
    """

    folder: str
    wanted: dict[str, dict[str, Any]]

    def mark(self, task: str) -> str | None:
        """How the data of `task` are marked; None if there are none.

        Raises:
            UserError: they are damaged, cannot be read, or were prepared with other flags.
        """
        try:
            manifest = prepared.load(self.folder, task, check_hashes=False).manifest
        except UserError:
            if (pathlib.Path(self.folder) / task / prepared.MANIFEST).exists():
                raise
            return None
        except OSError as error:
            raise UserError(f"{of_system(error)}; choose another --data_dir") from None
        request = manifest["request"] or {}
        for name, value in self._flags(task).items():
            if request.get(name) != value:
                raise UserError(
                    f"the sweep wants {task} with {name}={value}, that in {self.folder} has "
                    f"{request.get(name, 'another source')}; choose another --data_dir"
                )
        return manifest["data"]

    def takes(self, task: str) -> Callable[[str], bool]:
        """Whether rows on data marked so are of the data of `task`: those there are.

        Where there are none, those that would be generated, as far as flags tell; where they cannot
        be generated either, whatever the rows were trained on.
        """
        with contextlib.suppress(UserError):
            if (present := self.mark(task)) is not None:
                return lambda mark: mark == present
        flags = self._flags(task)
        if not _can_generate(task):
            return lambda mark: True
        if "data_label" in flags:
            return lambda mark: mark == flags["data_label"]
        return lambda mark: mark in _LRA or (bool(flags) and mark.startswith("differs ("))

    def seconds_to_generate(self, task: str) -> float:
        """What generating the data of `task`, which are not there, will take, by its own estimate.

        Raises:
            UserError: this task cannot be generated.
        """
        if not _can_generate(task):
            prepared.load(self.folder, task)  # raises: the message says how to prepare it
        flags = self._flags(task)
        return preparing.estimate_task(task, self.folder, source="generate", **flags).seconds

    def generate(self, task: str) -> str:
        """Generates the data of `task`, which can be generated, and returns their mark.

        Data that someone else has prepared by now stay and are taken.

        Raises:
            UserError: those were prepared with other flags, or what preparing says.
        """
        say(f"generating {task} in {self.folder}")
        flags = self._flags(task)
        preparing.prepare_task(task, self.folder, replace=False, source="generate", **flags)
        return self.mark(task)

    def _flags(self, task: str) -> dict[str, Any]:
        return self.wanted.get(task, {})
