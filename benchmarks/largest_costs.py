"""The most expensive operations of a compiled program, from a profiler trace."""

import collections
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from benchmarks import hlo_text

# Not counted: their time is that of the operations inside.
_CONTAINERS = ("while", "call", "conditional")
_NOISE = re.compile(r"jit\(\w*\)|vmap\(\)|while|body|closed_call|jvp\(\)|transpose\(jvp\(\)\)")


class Cost(NamedTuple):
    """Cost of an operation: its name, seconds on the device, shape, and origin in the program."""

    name: str
    seconds: float
    shape: str
    source: str


def trace(folder: pathlib.Path, call: Callable[[], Any]) -> None:
    """Write a trace of `call()` for TensorBoard, XProf or `largest_costs`."""
    with jax.profiler.trace(str(folder)):
        jax.block_until_ready(call())


def largest_costs(folder: pathlib.Path, program: str) -> list[Cost]:
    """Return the operations of the latest trace under `folder`, most expensive first.

    Seconds are summed over calls, threads and devices.

    Args:
        folder: Folder that was given to `trace`.
        program: HLO text of the compiled program, which holds shapes and sources.
    """
    latest = max(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    nanoseconds: collections.Counter[str] = collections.Counter()
    data = jax.profiler.ProfileData.from_file(str(latest))  # must outlive what is read from it
    for plane in data.planes:
        lines = list(plane.lines)
        summary = [line for line in lines if line.name == "XLA Ops"]  # others repeat its events
        for line in summary or lines:
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                if operation and not operation.startswith(_CONTAINERS):
                    nanoseconds[operation] += event.duration_ns
    shapes_and_sources = _shapes_and_sources(program)
    return [
        Cost(name, duration / 1e9, *shapes_and_sources.get(name, ("", "")))
        for name, duration in nanoseconds.most_common()
    ]


def table(costs: list[Cost], steps: int, rows: int = 12) -> str:
    """Format the first `rows` costs as text: milliseconds per step, share of the total, origin."""
    if not costs:
        return "the trace names no operations"
    total = sum(cost.seconds for cost in costs)
    lines = [f"{1e3 * total / steps:9.2f} ms/step of operations, summed over threads"]
    lines += [
        f"{1e3 * cost.seconds / steps:9.2f} ms {cost.seconds / total:6.1%}  {cost.name}  "
        f"{cost.shape}  {cost.source}"
        for cost in costs[:rows]
    ]
    return "\n".join(lines)


def _shapes_and_sources(text: str) -> dict[str, tuple[str, str]]:
    """Map instructions to shape and source.

    A fusion without a source gets that of the last instruction in it that has one.
    """
    computations = hlo_text.read(text).computations
    last_sources = {
        name: next(filter(None, (each.source for each in reversed(instructions))), "")
        for name, instructions in computations.items()
    }
    return {
        each.name: (
            each.shape.partition("{")[0],
            _shorten(each.source or last_sources.get(each.called, "")),
        )
        for instructions in computations.values()
        for each in instructions
    }


def _shorten(source: str) -> str:
    parts = [part for part in source.split("/") if not _NOISE.fullmatch(part)]
    return "/".join(parts)
