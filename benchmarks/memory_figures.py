"""Which memory figure a cost row shows, and how many examples fit."""

import math

# If a process grew by more than `_TOLERANCE` times what XLA's analysis knows, products allocated
# memory of their own (up to 6 times as much, on a CPU, where softmax and products become one
# operation). Growth is known in steps of 2 MB.
_TOLERANCE, _STEP = 1.25, 2e6


def memory_fields(analysis: dict, first: dict) -> dict:
    """Return all memory figures, and the one to show, as fields of `lra.efficiency.CostRow`.

    The one to show is the first available of XLA's, the device's and the process's, but the
    process's if it is far larger.

    Args:
        analysis: Analysis of the compiled program, with its `memory` in bytes.
        first: Result of the first calls, with `device_memory` and `process_memory` in bytes.
    """
    figures = {
        "xla": analysis.get("memory"),
        "device": first.get("device_memory"),
        "process": first.get("process_memory"),
    }
    figures = {source: value for source, value in figures.items() if value is not None}
    fields = {f"{source}_memory_mb": value / 1e6 for source, value in figures.items()}
    if not figures:
        return fields
    source = next(iter(figures))
    if figures.get("process", 0) > max(_TOLERANCE * figures[source], figures[source] + _STEP):
        source = "process"
    return fields | {"peak_memory_mb": figures[source] / 1e6, "memory_source": source}


def estimate_fields(analysis: dict, predicted: tuple[float, str] | None) -> dict:
    """Return the figure to show for a case that was not run, as row fields; empty if unknown.

    Args:
        analysis: Analysis of the compiled program; empty if it was not compiled.
        predicted: Bytes predicted from shorter lengths, and how those were measured.
    """
    needed, source = predicted or (None, "xla")
    if source == "xla":
        fields = memory_fields({"memory": needed} | analysis, {})
    else:
        fields = memory_fields(analysis, {f"{source}_memory": needed})
    return {name: fields[name] for name in ("peak_memory_mb", "memory_source") if name in fields}


def largest_batch(memory: float, first: float, each: float) -> int:
    """Return how many examples fit in `memory` bytes: the first takes `first`, others `each`."""
    return max(1, 1 + int((memory - first) / each))


def filling_batch(seconds: float, largest: int, target: float) -> int:
    """Return a batch that fills the device: a power of two whose call takes about `target` seconds.

    Args:
        seconds: Seconds of a call with batch 1.
        largest: Largest batch that fits in memory, which is not exceeded.
        target: Seconds of a call beyond which larger batches are not more efficient.
    """
    batch = min(largest, target / seconds)
    return 1 << max(0, math.floor(math.log2(max(batch, 1))))
