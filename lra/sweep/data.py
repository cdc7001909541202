"""The data of a sweep: what is prepared, and preparing what can be generated."""

import importlib
import pathlib
import sys
from typing import Any

from lra.data import prepare as preparing
from lra.data import prepared
from lra.errors import UserError


def mark(data_dir: str, task: str, wanted: dict[str, Any]) -> str | None:
    """How the prepared data of `task` are marked; None if there are none.

    Args:
        data_dir: folder of the prepared data.
        task: the task's name.
        wanted: flags of `lra.data.prepare` that the sweep asks for.

    Raises:
        UserError: they are damaged, or were prepared with other flags.
    """
    try:
        manifest = prepared.load(data_dir, task, check_hashes=False).manifest
    except UserError:
        if (pathlib.Path(data_dir) / task / prepared.MANIFEST).exists():
            raise
        return None
    request = manifest["request"] or {}
    for name, value in wanted.items():
        if request.get(name) != value:
            raise UserError(
                f"the sweep wants {task} with {name}={value}, that in {data_dir} has "
                f"{request.get(name, 'another source')}; choose another --data_dir"
            )
    return manifest["data"]


def generate(data_dir: str, task: str, wanted: dict[str, Any]) -> str:
    """Generates the data of `task`, which are not there, and returns their mark.

    Raises:
        UserError: this task cannot be generated.
    """
    if "generate" not in importlib.import_module(preparing.MODULES[task]).SOURCES:
        prepared.load(data_dir, task)  # raises: the message says how to prepare it
    print(f"generating {task} in {data_dir}", file=sys.stderr)
    return preparing.prepare_task(task, data_dir, source="generate", **wanted)["data"]
