"""Which operations of a compiled program take the time: a profiler's trace, read and summed up."""

import collections
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from benchmarks import hlo_text

# Left out: their time is that of the operations inside.
_CONTAINERS = ("while", "call", "conditional")
_NOISE = re.compile(r"jit\(\w*\)|vmap\(\)|while|body|closed_call|jvp\(\)|transpose\(jvp\(\)\)")


class Cost(NamedTuple):
    """An operation: its name, seconds on the device, shape, and origin in the program."""

    name: str
    seconds: float
    shape: str
    source: str


def trace(folder: pathlib.Path, call: Callable[[], Any]) -> None:
    """Writes a trace of `call()` for TensorBoard, XProf or `largest_costs`."""
    with jax.profiler.trace(str(folder)):
        jax.block_until_ready(call())


def largest_costs(folder: pathlib.Path, program: str) -> list[Cost]:
    """The operations of the latest trace under `folder`, the longest first.

    Seconds are summed over calls, threads and devices.

    Args:
        folder: given to `trace`.
        program: the text of the compiled program, which knows shapes and sources.
    """
    latest = max(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    nanoseconds: collections.Counter[str] = collections.Counter()
    data = jax.profiler.ProfileData.from_file(str(latest))  # must outlive what is read from it
    for plane in data.planes:
        lines = list(plane.lines)
        summary = [line for line in lines if line.name == "XLA Ops"]  # other lines repeat it
        for line in summary or lines:
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                if operation and not operation.startswith(_CONTAINERS):
                    nanoseconds[operation] += event.duration_ns
    known = _shapes_and_sources(program)
    return [
        Cost(name, duration / 1e9, *known.get(name, ("", "")))
        for name, duration in nanoseconds.most_common()
    ]


def table(costs: list[Cost], steps: int, rows: int = 12) -> str:
    """The first `rows` of the costs as lines of text: share, milliseconds a step, origin."""
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
    """By instruction; a fusion without a source has that of the last instruction in it."""
    computations = hlo_text.read(text).computations
    last = {
        name: next(filter(None, (each.source for each in reversed(inside))), "")
        for name, inside in computations.items()
    }
    return {
        each.name: (
            each.shape.partition("{")[0],
            _short(each.source or last.get(each.called, "")),
        )
        for inside in computations.values()
        for each in inside
    }


def _short(source: str) -> str:
    parts = [part for part in source.split("/") if not _NOISE.fullmatch(part)]
    return "/".join(parts)
