"""Times compiled programs in turns, so that other processes disturb all of them alike."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def fastest(programs: Mapping[str, Callable], arguments: tuple[Any, ...], runs: int) -> dict:
    """Seconds of the fastest of `runs` calls of each, by name; 0 without runs."""
    seconds = dict.fromkeys(programs, float("inf") if runs else 0.0)
    for _ in range(runs):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds
