"""The text of a compiled program, read: its computations and their instructions."""

import math
import re
from typing import NamedTuple

_START = re.compile(r"^(?:ENTRY )?%([\w.-]+) .*{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.-]+) = (.*)$")
_NAME = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"(?:calls|body|to_apply)=%([\w.-]+)")
_SOURCE = re.compile(r'op_name="([^"]*)"')
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
# The workspace of cuBLAS, no part of the product: its size is fixed, however much is used.
_WORKSPACE = re.compile(r"s8\[\d+\]")


class Instruction(NamedTuple):
    """`name = shape operation(arguments), rest`; size is that of the shape, in bytes."""

    name: str
    shape: str
    size: int
    operation: str
    arguments: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """Names of the instructions it reads."""
        return _NAME.findall(self.arguments)

    @property
    def called(self) -> str:
        """Name of the computation that it carries out, or nothing."""
        found = _CALLED.search(self.rest)
        return found[1] if found else ""

    @property
    def source(self) -> str:
        """The operation of JAX it is of, or nothing."""
        found = _SOURCE.search(self.rest)
        return found[1] if found else ""


class Program(NamedTuple):
    """Instructions of each computation, in the order of computing; `entry` names the first."""

    computations: dict[str, list[Instruction]]
    entry: str


def read(text: str) -> Program:
    """A compiled program, given its text."""
    computations: dict[str, list[Instruction]] = {}
    entry = current = ""
    for line in text.splitlines():
        if start := _START.match(line):
            current = start[1]
            computations[current] = []
            entry = current if line.startswith("ENTRY") else entry
        elif current and (found := _INSTRUCTION.match(line)):
            computations[current].append(_instruction(found[1], found[2]))
    return Program(computations, entry)


def _instruction(name: str, text: str) -> Instruction:
    shape, text = _split(text) if text.startswith("(") else text.split(" ", 1)
    if '"__cublas$' in text:
        shape = _WORKSPACE.sub("", shape)
    operation, _, _ = text.strip().partition("(")
    arguments, rest = _split(text.strip()[len(operation) :])
    return Instruction(name, shape, _size(shape), operation, arguments, rest)


def _split(text: str) -> tuple[str, str]:
    """A text that begins with a bracket, divided behind its closing one."""
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[: position + 1], text[position + 1 :]
    return text, ""


def _size(shape: str) -> int:
    total = 0
    for kind, sides in _ARRAY.findall(shape):
        bits = re.search(r"\d+", kind)
        width = 1 if kind == "pred" else int(bits[0]) / 8 if bits else 0
        total += width * math.prod(int(side) for side in sides.split(",") if side)
    return int(total)
