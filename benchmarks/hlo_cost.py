"""FLOPs, bytes and memory of a compiled program, with every iteration of its loops.

XLA's cost analysis counts the body of a loop once, whatever its trip count, and leaves out products
that it hands to a library. So the bytes of programs with loops are counted here, from the compiled
HLO and by XLA's convention: each instruction counts the bytes it reads and writes, a fusion is one
instruction, and of an array that is only sliced, only the slices count.
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
# Suffixes of asynchronous slice copies on GPUs, whose tuples hold the whole arrays.
_ASYNCHRONOUS = ("-start", "-done")
_TRIP_COUNT = re.compile(r'"known_trip_count":{"n":"(\d+)"')


def memory_of(compiled: Compiled) -> int:
    """Return bytes of device memory for one call: arguments, outputs and temporary values."""
    memory = compiled.memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )


def cost_of(compiled: Compiled, function: Callable, arguments: tuple) -> dict[str, float | None]:
    """Return `flops` and `bytes_accessed` of one call.

    `flops` is XLA's count, but at least that of the matrix products in `function`.
    `bytes_accessed` is None if the trip count of a loop is unknown.
    """
    analysis, text = compiled.cost_analysis() or {}, compiled.as_text()
    moved = bytes_of(text) if " while(" in text else analysis.get("bytes accessed")
    least_flops = product_flops(function, *arguments)
    return {"flops": max(analysis.get("flops", 0), least_flops), "bytes_accessed": moved}


class Kernel(NamedTuple):
    """An instruction of a compiled program that reads and writes memory.

    Attributes:
        name: Name of the instruction in the HLO.
        size: Bytes read and written by one execution.
        turns: Number of executions in one call; loops of unknown trip count count as the
            `unknown_turns` of `kernels_of`.
        looped: Whether the instruction is inside a loop.
        source: JAX operation that it stems from.
    """

    name: str
    size: float
    turns: float
    looped: bool
    source: str


def bytes_of(text: str) -> float | None:
    """Return bytes read and written by a compiled program; None if a trip count is unknown.

    Args:
        text: Compiled HLO of the program.
    """
    moved = sum(kernel.size * kernel.turns for kernel in kernels_of(text))
    return None if math.isnan(moved) else moved


def kernels_of(text: str, unknown_turns: float = math.nan) -> Iterator[Kernel]:
    """Yield the kernels that a compiled program runs, in order of execution.

    Args:
        text: Compiled HLO of the program.
        unknown_turns: Trip count to assume for loops whose own is unknown.
    """
    program = hlo_text.read(text)
    sizes = {
        name: {each.name: each.size for each in instructions}
        for name, instructions in program.computations.items()
    }

    def trip_count(loop: Instruction) -> float:
        match = _TRIP_COUNT.search(loop.rest)
        return int(match[1]) if match else unknown_turns

    for each, computation, turns, looped in executions(program, trip_count):
        if each.operation not in _FREE and not each.operation.endswith(_ASYNCHRONOUS):
            called = program.computations.get(each.called, [])
            size = _bytes_of_one(each, sizes[computation], called)
            yield Kernel(each.name, size, turns, looped, each.source)


class Execution(NamedTuple):
    """An instruction of a program, its computation, its turns in one call, whether in a loop."""

    instruction: Instruction
    computation: str
    turns: float
    looped: bool


def executions(
    program: hlo_text.Program, trip_count: Callable[[Instruction], float]
) -> Iterator[Execution]:
    """Yield each instruction that a program executes, in order, with its number of turns.

    Those inside loops and calls are yielded instead of the loop or call; those inside the branches
    of a conditional are not, the conditional is.

    Args:
        program: Compiled program.
        trip_count: Function that returns the number of turns of a loop.
    """

    def walk(computation: str, turns: float, looped: bool) -> Iterator[Execution]:
        for each in program.computations[computation]:
            if each.operation == "while":
                yield from walk(each.called, turns * trip_count(each), True)
            elif each.operation == "call":
                yield from walk(each.called, turns, looped)
            else:
                yield Execution(each, computation, turns, looped)

    return walk(program.entry, 1, False)


def _bytes_of_one(
    instruction: Instruction, sizes: dict[str, int], called: list[Instruction]
) -> float:
    """Return bytes that an instruction reads and writes in one execution.

    Args:
        instruction: Instruction to count.
        sizes: Bytes of the results of all instructions in its computation, by name.
        called: Instructions of the computation that it calls.
    """
    operand_sizes = [sizes.get(operand, 0) for operand in instruction.operands]
    if instruction.operation == "fusion":
        return _bytes_of_fusion(instruction, operand_sizes, called)
    if instruction.operation in _SLICES:
        return 2 * instruction.size
    if instruction.operation == "dynamic-update-slice":
        return 2 * operand_sizes[1]
    return instruction.size + sum(operand_sizes)


def _bytes_of_fusion(fusion: Instruction, operand_sizes: list[int], body: list[Instruction]) -> int:
    """Return bytes that a fusion reads and writes.

    Of arrays that it only slices or updates, only the slices count.
    """
    sizes = {each.name: each.size for each in body}
    total = fusion.size
    for parameter in body:
        if parameter.operation != "parameter":
            continue
        aliases, users = {parameter.name}, []
        for each in body:  # in order of execution
            if aliases.intersection(each.operands):
                if each.operation == "bitcast":
                    aliases.add(each.name)
                else:
                    users.append(each)
        slice_sizes = [each.size for each in users if each.operation in _SLICES]
        updates = [
            each
            for each in users
            if each.operation == "dynamic-update-slice" and each.operands[0] in aliases
        ]
        if users and len(slice_sizes) + len(updates) == len(users):
            total += sum(slice_sizes)
            # An update in place writes its slice, not the array.
            total += sum(sizes[each.operands[1]] - each.size for each in updates)
        else:
            total += operand_sizes[int(parameter.arguments.strip("()"))]
    return max(total, 0)
