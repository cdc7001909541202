"""Parser of compiled HLO text: computations and their instructions."""

import math
import re
from typing import NamedTuple

_START = re.compile(r"^(?:ENTRY )?%([\w.-]+) .*{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.-]+) = (.*)$")
_NAME = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"(?:calls|body|to_apply)=%([\w.-]+)")
_CONDITION = re.compile(r"condition=%([\w.-]+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_SOURCE = re.compile(r'op_name="([^"]*)"')
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
# Workspace that products by cuBLAS list in their shapes. It is left out: its size is fixed,
# however much of it is used.
_WORKSPACE = re.compile(r"s8\[\d+\]")


class Instruction(NamedTuple):
    """An instruction `name = shape operation(arguments), rest`; `size` is the shape's bytes."""

    name: str
    shape: str
    size: int
    operation: str
    arguments: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """Names of the instructions whose results it reads."""
        return _NAME.findall(self.arguments)

    @property
    def called(self) -> str:
        """Name of the computation that it calls, or the empty string."""
        match = _CALLED.search(self.rest)
        return match[1] if match else ""

    @property
    def condition(self) -> str:
        """Name of the computation that decides whether a loop goes on, or the empty string."""
        match = _CONDITION.search(self.rest)
        return match[1] if match else ""

    @property
    def estimated_cycles(self) -> int | None:
        """Cycles by the estimate of XLA's compiler for TPUs, None if it gives none."""
        match = _CYCLES.search(self.rest)
        return int(match[1]) if match else None

    @property
    def source(self) -> str:
        """JAX operation that it stems from, or the empty string."""
        match = _SOURCE.search(self.rest)
        return match[1] if match else ""


class Program(NamedTuple):
    """Instructions of each computation in order of execution, and the name of the entry."""

    computations: dict[str, list[Instruction]]
    entry: str


def read(text: str) -> Program:
    """Parse the HLO text of a compiled program."""
    computations: dict[str, list[Instruction]] = {}
    entry = current = ""
    for line in text.splitlines():
        if start := _START.match(line):
            current = start[1]
            computations[current] = []
            entry = current if line.startswith("ENTRY") else entry
        elif current and (match := _INSTRUCTION.match(line)):
            computations[current].append(_parse_instruction(match[1], match[2]))
    return Program(computations, entry)


def _parse_instruction(name: str, text: str) -> Instruction:
    shape, text = _split_parenthesised(text) if text.startswith("(") else text.split(" ", 1)
    if '"__cublas$' in text:
        shape = _WORKSPACE.sub("", shape)
    operation, _, _ = text.strip().partition("(")
    arguments, rest = _split_parenthesised(text.strip()[len(operation) :])
    return Instruction(name, shape, _num_bytes(shape), operation, arguments, rest)


def _split_parenthesised(text: str) -> tuple[str, str]:
    """Split a text that begins with a parenthesis after the matching closing one."""
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[: position + 1], text[position + 1 :]
    return text, ""


def _num_bytes(shape: str) -> int:
    """Return the total bytes of all arrays in an HLO shape, such as `(f32[8,2]{1,0}, pred[])`."""
    total = 0
    for dtype, dims in _ARRAY.findall(shape):
        bits = re.search(r"\d+", dtype)
        itemsize = 1 if dtype == "pred" else int(bits[0]) / 8 if bits else 0
        total += itemsize * math.prod(int(dim) for dim in dims.split(",") if dim)
    return int(total)
