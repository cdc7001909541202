"""How batches are computed: on a CPU in parts that fit its caches, cut to their longest sequence.

Cutting is described in `lra.buckets`. Without parts, every operation of a step writes its result to
memory and the next reads it back: a step of ListOps then took 1.7 (Nyström, Linformer) to 2.1 times
as long (Performer), on two cores (`python -m benchmarks.train_step --tasks=listops` of commits
40b506c and 6b65930). Other devices take the batch as a whole, or in as many parts as
`train.microbatches` asks for, as do several virtual CPU devices, which serve for testing.
"""

import math
from typing import NamedTuple

import numpy as np
from ml_collections import config_dict

from lra.buckets import choose_lengths, choose_packed_lengths
from lra.process import cores
from models.machine import this_backend

# Numbers per core in an activation array of the model's width: 1 MiB of float32, a core's L2 cache.
_NUMBERS_PER_CORE = 2**18


class Plan(NamedTuple):
    """How the batches of a run are computed.

    Attributes:
        microbatches: parts of a training batch, one after another.
        eval_batch: examples in a batch of an evaluation.
        step_buckets: lengths to which parts of a training batch are cut, ascending, the last one
            the padded length; only that: nothing is cut.
        eval_buckets: the same of batches of an evaluation.
        packed: whether these are lengths to which sequences are packed; the last one is then that
            of the longest.
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
    """The plan of a run.

    Args:
        config: of the run.
        lengths: of the training examples, int [examples], in positions, real ones if `longest` is
            given.
        padded: the length they are padded to.
        pairs: whether an example has two sequences.
        devices: that share the batch or the seeds.
        longest: the most real positions of any example, where padding lies between them; None:
            it is only at the ends.
        cut_padding: whether anything may be cut.
    """
    numbers = padded * (2 if pairs else 1) * config.model.dim * len(config.seeds)
    batch, eval_batch = config.train.batch_size, config.train.eval_batch_size
    microbatches = number_of_parts(
        batch, numbers, devices=devices, at_least=config.train.microbatches
    )
    eval_parts = number_of_parts(eval_batch, numbers, devices=devices)
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
    """A divisor of `batch`, itself a multiple of `at_least`.

    Args:
        batch: number of examples.
        example_numbers: numbers in one activation of one example: positions times width.
        devices: that share the batch or the seeds.
        at_least: the parts asked for, a divisor of `batch`.
    """
    if devices > 1 or this_backend() != "cpu":
        return at_least
    fitting = cores() * _NUMBERS_PER_CORE // example_numbers
    small = [n for n in range(1, math.isqrt(batch) + 1) if batch % n == 0]
    divisors = sorted({*small, *(batch // n for n in small)})
    parts = [n for n in divisors if n % at_least == 0]
    return next((n for n in parts if batch // n <= fitting), batch)
