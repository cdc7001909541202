"""How batches are divided: on a CPU into parts that fit its caches, cut to their longest sequence.

Cutting is described in `lra.buckets`. Without parts, every operation of a step writes its result to
memory and the next reads it back: a step of ListOps then took 1.7 (Nyström, Linformer) to 2.1 times
as long (Performer), on two cores (`python -m benchmarks.train_step --tasks=listops` of commits
40b506c and 6b65930). Other devices process the batch as a whole or in `train.microbatches` parts,
and so do several virtual CPU devices, which serve for testing.
"""

import math
from typing import NamedTuple

import numpy as np
from ml_collections import config_dict

from lra.buckets import choose_lengths, choose_packed_lengths
from lra.process import cores
from models.machine import this_backend

# Elements of an activation array of the model's width per core: 1 MiB of float32, its L2 cache.
_ELEMENTS_PER_CORE = 2**18


class Plan(NamedTuple):
    """How the batches of a run are divided and cut.

    Attributes:
        microbatches: Number of parts of a training batch, processed one after another.
        eval_batch: Number of examples in an evaluation batch.
        step_buckets: Lengths to which parts of a training batch are cut, ascending, the last one
            the padded length; with that alone, nothing is cut.
        eval_buckets: Lengths to which evaluation batches are cut, likewise.
        packed: Whether sequences are packed to these lengths instead; the last one then holds the
            longest sequence.
    """

    microbatches: int
    eval_batch: int
    step_buckets: tuple[int, ...]
    eval_buckets: tuple[int, ...]
    packed: bool = False


def plan_batches(
    config: config_dict.ConfigDict,
    lengths: np.ndarray,
    padded: int,
    *,
    pairs: bool,
    devices: int,
    longest: int | None = None,
    cut_padding: bool = True,
) -> Plan:
    """Choose how the batches of a run are divided and cut.

    Args:
        config: Config of the run.
        lengths: Length of each training example in positions, int [examples]; the number of real
            positions if `longest` is given.
        padded: Length they are padded to.
        pairs: Whether an example has two sequences.
        devices: Number of devices that share the batch or the seeds.
        longest: Largest number of real positions of any example, if padding lies between them; None
            if padding is only at the end.
        cut_padding: Whether batches may be cut or packed.
    """
    elements = padded * (2 if pairs else 1) * config.model.dim * len(config.seeds)
    batch, eval_batch = config.train.batch_size, config.train.eval_batch_size
    microbatches = number_of_parts(
        batch, elements, devices=devices, at_least=config.train.microbatches
    )
    eval_parts = number_of_parts(eval_batch, elements, devices=devices)
    eval_batch //= eval_parts
    step_buckets = eval_buckets = (padded,)
    if cut_padding and longest is not None:
        packed = choose_packed_lengths(lengths, longest, padded, devices=devices)
        if packed is not None:
            return Plan(microbatches, eval_batch, *packed, packed=True)
    elif cut_padding:
        eval_buckets = choose_lengths(lengths, padded, devices=devices, evaluation=True)
        if microbatches > 1:  # a whole batch nearly always has a sequence of about full length
            step_buckets = choose_lengths(lengths, padded, devices=devices)
    return Plan(microbatches, eval_batch, step_buckets, eval_buckets)


def number_of_parts(
    batch: int, example_numbers: int, *, devices: int = 1, at_least: int = 1
) -> int:
    """Number of parts to process a batch in, a divisor of `batch` and multiple of `at_least`.

    Args:
        batch: Number of examples in the batch.
        example_numbers: Number of elements in one activation of one example: positions times width.
        devices: Number of devices that share the batch or the seeds.
        at_least: Number of parts that the configuration asks for, a divisor of `batch`.
    """
    if devices > 1 or this_backend() != "cpu":
        return at_least
    examples_in_cache = cores() * _ELEMENTS_PER_CORE // example_numbers
    small = [n for n in range(1, math.isqrt(batch) + 1) if batch % n == 0]
    divisors = sorted({*small, *(batch // n for n in small)})
    candidates = [n for n in divisors if n % at_least == 0]
    return next((n for n in candidates if batch // n <= examples_in_cache), batch)
