"""In how many parts a CPU takes a batch, so that what a part computes stays in its caches.

Otherwise every operation of a step writes its result to memory and the next reads it from there: a
step of ListOps took 1.7 (Nyström, Linformer) to 2.1 times as long (Performer) before, on two cores
(`python -m benchmarks.train_step --tasks=listops` of commits 40b506c and 6b65930). Other devices
take the batch as a whole, and so do several virtual CPU devices, a means of testing.
"""

import jax

from lra import environment

# Activations of one width, in numbers, for each core: 1 MiB of float32, a core's second cache.
_NUMBERS_PER_CORE = 2**18


def number_of_parts(
    batch: int, example_numbers: int, *, devices: int = 1, at_least: int = 1
) -> int:
    """A divisor of `batch`, itself a multiple of `at_least`.

    Args:
        batch: number of examples.
        example_numbers: numbers in one activation of one example: positions times width.
        devices: that share the batch or the seeds.
        at_least: the parts asked for, a divisor of `batch`.
    """
    if devices > 1 or jax.default_backend() != "cpu":
        return at_least
    fitting = environment.cores() * _NUMBERS_PER_CORE // example_numbers
    parts = [n for n in range(at_least, batch + 1, at_least) if batch % n == 0]
    return next((n for n in parts if batch // n <= fitting), batch)
