"""Operations, bytes and memory of a compiled program, with every turn of its loops.

XLA's own analysis counts the body of a loop once, whatever its number of turns, and leaves out
products that it hands to a library. So the bytes of programs with loops are counted here, from the
text of the compiled program and by XLA's convention: each instruction counts with what it reads and
writes; a fusion is one instruction; of an array that is only sliced, the slices count.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from jax.stages import Compiled

from benchmarks import hlo_text
from benchmarks.flops import product_flops
from benchmarks.hlo_text import Instruction

_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"}
_SLICES = {"slice", "dynamic-slice", "gather"}
# GPUs copy slices beside other kernels; the tuples of these operations hold whole arrays.
_ASYNCHRONOUS = ("-start", "-done")
_TURNS = re.compile(r'"known_trip_count":{"n":"(\d+)"')


def memory_of(compiled: Compiled) -> int:
    """Bytes of a device that one call needs at once: arguments, outputs, intermediate values."""
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


class Kernel(NamedTuple):
    """One instruction that a program carries out.

    Attributes:
        name: in the text of the program.
        size: bytes read and written in one turn.
        turns: of the loops around it; not a number where one does not tell its own.
        looped: whether there is a loop around it.
        source: the operation of JAX it is of.
    """

    name: str
    size: float
    turns: float
    looped: bool
    source: str


def bytes_of(text: str) -> float | None:
    """Bytes read and written by a compiled program, given its text; None if turns are unknown."""
    moved = sum(each.size * each.turns for each in kernels_of(text))
    return None if math.isnan(moved) else moved


def kernels_of(text: str, unknown_turns: float = math.nan) -> Iterator[Kernel]:
    """The kernels that a compiled program runs, given its text.

    Args:
        text: of the program.
        unknown_turns: of loops that do not tell theirs.
    """
    program = hlo_text.read(text)

    def inside(computation: str, turns: float, looped: bool) -> Iterator[Kernel]:
        instructions = program.computations[computation]
        sizes = {each.name: each.size for each in instructions}
        for each in instructions:
            if each.operation == "while":
                known = _TURNS.search(each.rest)
                more = int(known[1]) if known else unknown_turns
                yield from inside(each.called, turns * more, True)
            elif each.operation == "call":
                yield from inside(each.called, turns, looped)
            elif each.operation not in _FREE and not each.operation.endswith(_ASYNCHRONOUS):
                size = _size_of(each, sizes, program.computations.get(each.called, []))
                yield Kernel(each.name, size, turns, looped, each.source)

    return inside(program.entry, 1, False)


def _size_of(each: Instruction, sizes: dict[str, int], inside: list[Instruction]) -> float:
    """Bytes that an instruction reads and writes; `inside` is the computation that it calls."""
    read = [sizes.get(operand, 0) for operand in each.operands]
    if each.operation == "fusion":
        return _fusion(each, read, inside)
    if each.operation in _SLICES:
        return 2 * each.size
    if each.operation == "dynamic-update-slice":
        return 2 * read[1]
    return each.size + sum(read)


def _fusion(fusion: Instruction, operands: list[int], inside: list[Instruction]) -> int:
    """Bytes that a fusion reads and writes: of arrays that it only slices or updates, the parts."""
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
