"""How fast are LRA-length ListOps expressions generated, and in how much memory?

    python -m benchmarks.listops_generation --workers=1

Reference: LRA's generator in plain Python needs about 3 minutes for 100,000 expressions on one
core. The time includes evaluating expressions and rejecting duplicates, but not writing them;
compilation is timed separately.
"""

import itertools
import time

from lra.command_line import ArgumentParser, positive_integer, run, worker_count
from lra.data.listops_generator import (
    ATTEMPTS_PER_BLOCK,
    Rules,
    block_of_expressions,
    expressions,
)
from lra.data.listops_language import evaluate
from lra.process import peak_memory_bytes


def main(argv: list[str]) -> int:
    """Generate expressions; print expressions/s, acceptance rate and peak memory."""
    parser = ArgumentParser(prog="python -m benchmarks.listops_generation", description=__doc__)
    parser.add_argument(
        "--count", type=positive_integer, default=100_000, help="expressions (%(default)s)"
    )
    parser.add_argument("--workers", type=worker_count, default=1, help="threads (%(default)s)")
    options = parser.parse_args(argv)
    start = time.perf_counter()
    accepted = len(block_of_expressions(Rules(), 1, 0))
    evaluate(b"\x06")
    print(f"start         {time.perf_counter() - start:.1f} s (compiling, or reading what was)")
    seconds, tokens = _generate(options.count, options.workers)
    print(f"expressions   {options.count:,} in {seconds:.1f} s, {options.count / seconds:,.0f} /s")
    print(f"mean length   {tokens / options.count:,.1f}")
    print(f"acceptance    {accepted / ATTEMPTS_PER_BLOCK:.2%} (of {ATTEMPTS_PER_BLOCK:,} attempts)")
    print(f"peak memory   {peak_memory_bytes() / 1e6:,.0f} MB")
    return 0


def _generate(count: int, workers: int) -> tuple[float, int]:
    """Generate and evaluate `count` expressions; return the seconds taken and number of tokens."""
    start = time.perf_counter()
    source = expressions(Rules(), 0, workers)
    tokens = 0
    for expression in itertools.islice(source, count):
        evaluate(expression)
        tokens += len(expression)
    source.close()
    return time.perf_counter() - start, tokens


if __name__ == "__main__":
    run(main)
