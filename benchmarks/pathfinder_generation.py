"""How fast are Pathfinder images generated, and in how much memory?

    python -m benchmarks.pathfinder_generation                       every size and difficulty
    python -m benchmarks.pathfinder_generation --size=32 --difficulty=hard --workers=2 --seconds=30

Reference: the published generator (github.com/drewlinsley/pathfinder) draws 3.3 images/s of
32 x 32 hard on one core. `attempts` counts how often drawing of the two target snakes was started
per image. Compilation, or loading compiled code, is timed separately; writing is not timed.
"""

import itertools
import time

from lra.command_line import ArgumentParser, positive_number, run, worker_count
from lra.data.pathfinder_generator import batches
from lra.data.pathfinder_parameters import DASHES, SIZES, parameters
from lra.process import peak_memory_bytes


def main(argv: list[str]) -> int:
    """Generate images for a while; print images/s, attempts and peak memory."""
    parser = ArgumentParser(prog="python -m benchmarks.pathfinder_generation", description=__doc__)
    parser.add_argument("--size", type=int, choices=SIZES, help="only this one")
    parser.add_argument("--difficulty", choices=tuple(DASHES), help="only this one")
    parser.add_argument("--workers", type=worker_count, default=1, help="threads (1)")
    parser.add_argument("--seconds", type=positive_number, default=5, help="for each line (5)")
    options = parser.parse_args(argv)
    sizes = SIZES if options.size is None else (options.size,)
    difficulties = tuple(DASHES) if options.difficulty is None else (options.difficulty,)
    start = time.perf_counter()
    next(batches(parameters(SIZES[0], "easy"), seed=1, count=1))
    print(f"start {time.perf_counter() - start:.1f} s")
    print("size  difficulty    images  images/s  attempts/image  peak memory")
    for size, difficulty in itertools.product(sizes, difficulties):
        count, seconds, attempts = _measure(size, difficulty, options.workers, options.seconds)
        print(
            f"{size:4}  {difficulty:12}{count:8,}{count / seconds:10,.0f}{attempts / count:16,.1f}"
            f"{peak_memory_bytes() / 1e6:10,.0f} MB",
            flush=True,
        )
    return 0


def _measure(size: int, difficulty: str, workers: int, seconds: float) -> tuple[int, float, int]:
    """Generate images for about `seconds`; return their number, the time taken and the attempts."""
    count = attempts = 0
    start = time.perf_counter()
    source = batches(parameters(size, difficulty), seed=0, count=1 << 40, workers=workers)
    for batch in source:
        count += len(batch.labels)
        attempts += int(batch.layout.attempts.sum())
        if time.perf_counter() - start > seconds:
            break
    elapsed = time.perf_counter() - start
    source.close()
    return count, elapsed, attempts


if __name__ == "__main__":
    run(main)
