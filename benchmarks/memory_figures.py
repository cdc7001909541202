"""Which figure of memory a row of cost shows, and how many examples fit."""

import math

# If a process grew by more than `_UNSEEN` times what XLA's analysis knows, products took memory of
# their own (up to 6 times as much, on a CPU, where softmax and products become one operation).
# Growth is known in steps of 2 MB.
_UNSEEN, _STEP = 1.25, 2e6


def memory_fields(analysis: dict, first: dict) -> dict:
    """All figures of memory, and the one to show, as fields of `lra.efficiency.CostRow`.

    The first of XLA's, the device's and the process's is shown; but the process's if it grew by far
    more than that.

    Args:
        analysis: of the compiled program, its `memory` in bytes.
        first: of the first calls, `device_memory` and `process_memory` in bytes.
    """
    found = {
        "xla": analysis.get("memory"),
        "device": first.get("device_memory"),
        "process": first.get("process_memory"),
    }
    found = {source: value for source, value in found.items() if value is not None}
    fields = {f"{source}_memory_mb": value / 1e6 for source, value in found.items()}
    if not found:
        return fields
    source = next(iter(found))
    if found.get("process", 0) > max(_UNSEEN * found[source], found[source] + _STEP):
        source = "process"
    return fields | {"peak_memory_mb": found[source] / 1e6, "memory_source": source}


def estimate_fields(analysis: dict, predicted: tuple[float, str] | None) -> dict:
    """The figure to show for a case that was not run, as fields of a row; empty if there is none.

    Args:
        analysis: of the compiled program; empty if it was not compiled.
        predicted: bytes predicted from shorter lengths, and how those were measured.
    """
    needed, source = predicted or (None, "xla")
    if source == "xla":
        fields = memory_fields({"memory": needed} | analysis, {})
    else:
        fields = memory_fields(analysis, {f"{source}_memory": needed})
    return {name: fields[name] for name in ("peak_memory_mb", "memory_source") if name in fields}


def largest_batch(memory: float, first: float, each: float) -> int:
    """How many examples fit in `memory` bytes, if one takes `first` and every other `each`."""
    return max(1, 1 + int((memory - first) / each))


def filling_batch(seconds: float, largest: int, target: float) -> int:
    """The batch that fills a device: a power of two, at most `largest`, about `target` seconds.

    Args:
        seconds: of a call with batch 1.
        largest: batch that fits in memory.
        target: seconds after which a longer call has nothing more to gain.
    """
    batch = min(largest, target / seconds)
    return 1 << max(0, math.floor(math.log2(max(batch, 1))))
