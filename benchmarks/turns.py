"""Timing of compiled programs in turns, so that other processes disturb all of them alike."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def fastest(programs: Mapping[str, Callable], arguments: tuple[Any, ...], runs: int) -> dict:
    """Call programs in turns; return the seconds of each one's fastest call (0 without runs).

    Args:
        programs: Programs by name.
        arguments: Arguments of every program.
        runs: Number of calls of each program.
    """
    seconds = dict.fromkeys(programs, float("inf") if runs else 0.0)
    for _ in range(runs):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds
