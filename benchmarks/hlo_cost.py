"""Operations, bytes and memory of a compiled program, with every turn of its loops.

XLA's own analysis counts the body of a loop once, whatever its number of turns, and nothing of
products that it hands to a library. Where a program has loops its bytes are counted here, from the
text of the compiled program, by XLA's convention: what each instruction reads and writes, a fusion
being one instruction, and of an array that is only sliced the slices.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from jax.stages import Compiled

from benchmarks.flops import product_flops

_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"}
_SLICES = {"slice", "dynamic-slice", "gather"}
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_START = re.compile(r"^(?:ENTRY )?%([\w.-]+) .*{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.-]+) = (.*)$")
_NAME = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"(?:calls|body|to_apply)=%([\w.-]+)")
# Of cuBLAS, not the product: a fixed size, of which it uses what it likes.
_WORKSPACE = re.compile(r"s8\[\d+\]")
_TURNS = re.compile(r'"known_trip_count":{"n":"(\d+)"')


class _Instruction(NamedTuple):
    """`name = size operation(arguments), rest`; size in bytes."""

    name: str
    size: int
    operation: str
    arguments: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """Names of the instructions it reads."""
        return _NAME.findall(self.arguments)


def memory_of(compiled: Compiled) -> int:
    """Bytes of a device that one call needs at once: arguments, outputs and what is between."""
    memory = compiled.memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )


def cost_of(compiled: Compiled, function: Callable, arguments: tuple) -> dict[str, float | None]:
    """`flops` and `bytes_accessed` of one call.

    Flops are XLA's, but at least those of the matrix products of the source. Bytes are None where
    a loop does not tell its number of turns.
    """
    analysis, text = compiled.cost_analysis() or {}, compiled.as_text()
    moved = bytes_of(text) if " while(" in text else analysis.get("bytes accessed")
    products = product_flops(function, *arguments)
    return {"flops": max(analysis.get("flops", 0), products), "bytes_accessed": moved}


def bytes_of(text: str) -> float | None:
    """Bytes read and written by a compiled program, given its text."""
    computations: dict[str, list[_Instruction]] = {}
    entry = current = ""
    for line in text.splitlines():
        if start := _START.match(line):
            current = start[1]
            computations[current] = []
            entry = current if line.startswith("ENTRY") else entry
        elif current and (found := _INSTRUCTION.match(line)):
            computations[current].append(_parse(found[1], found[2]))
    moved = _bytes_of(entry, computations)
    return None if math.isnan(moved) else moved


def _parse(name: str, text: str) -> _Instruction:
    shape, text = _split(text) if text.startswith("(") else text.split(" ", 1)
    if '"__cublas$' in text:
        shape = _WORKSPACE.sub("", shape)
    operation, _, _ = text.strip().partition("(")
    arguments, rest = _split(text.strip()[len(operation) :])
    return _Instruction(name, _size(shape), operation, arguments, rest)


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


def _bytes_of(computation: str, computations: dict[str, list[_Instruction]]) -> float:
    """Of one turn of a computation; not a number where a loop's turns are unknown."""
    sizes = {each.name: each.size for each in computations[computation]}
    total = 0.0
    for each in computations[computation]:
        read = sum(sizes.get(operand, 0) for operand in each.operands)
        called = _CALLED.search(each.rest)
        if each.operation in _FREE:
            continue
        if each.operation == "while":
            turns = _TURNS.search(each.rest)
            turn = _bytes_of(called[1], computations)
            total += turn * int(turns[1]) if turns else math.nan
        elif each.operation == "call":
            total += _bytes_of(called[1], computations)
        elif each.operation == "fusion":
            total += _fusion(
                each, [sizes.get(o, 0) for o in each.operands], computations[called[1]]
            )
        elif each.operation in _SLICES:
            total += 2 * each.size
        elif each.operation == "dynamic-update-slice":
            total += 2 * sizes.get(each.operands[1], 0)
        else:
            total += each.size + read
    return total


def _fusion(fusion: _Instruction, operands: list[int], inside: list[_Instruction]) -> int:
    """What a fusion reads and writes: of arrays that it only slices, or updates, those parts."""
    sizes = {each.name: each.size for each in inside}
    total = fusion.size
    for parameter in inside:
        if parameter.operation != "parameter":
            continue
        names, users = {parameter.name}, []
        for each in inside:  # in the order of computing
            if names.intersection(each.operands):
                if each.operation == "bitcast":
                    names.add(each.name)
                else:
                    users.append(each)
        sliced = [each.size for each in users if each.operation in _SLICES]
        updates = [
            each
            for each in users
            if each.operation == "dynamic-update-slice" and each.operands[0] in names
        ]
        if users and len(sliced) + len(updates) == len(users):
            total += sum(sliced)
            # An update in place writes its slice, not the array.
            total += sum(sizes[each.operands[1]] - each.size for each in updates)
        else:
            total += operands[int(parameter.arguments.strip("()"))]
    return max(total, 0)
