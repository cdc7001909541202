"""How the batches of a run are divided into parts, and to which lengths these are cut.

On a CPU, parts fit its caches. Without them, every operation of a step writes its result to memory
and the next reads it back: a step of ListOps then took 1.7 (Nyström, Linformer) to 2.1 times as
long (Performer), on two cores (`python -m benchmarks.train_step --tasks=listops` of commits 40b506c
and 6b65930). Other devices process the batch as a whole or in `train.microbatches` parts, and so do
several virtual CPU devices, which serve for testing.

Half of ListOps' padded positions and two thirds of Text's are padding, which costs a model of fixed
shapes as much as tokens do. So a CPU sorts a batch by length and cuts each part to the shortest of
a few lengths that holds it (`lra.parts`). Results differ only by rounding: every attention gives
the same output for a shorter sequence as for the padded one (`models.attention.contract`), and the
dropout mask of a position does not depend on what follows it. On other devices nothing is cut: the
longest sequence of a whole training batch nearly always needs the full length, and branches were
not timed there.

Where zero is padding, padding lies between the tokens, and sequences are packed instead if that
removes enough positions (`models.attention.packing`): 40,000 generated images of Pathfinder have
203 to 549 real positions of 1,024. The length of a sequence is then its number of real positions.
Devices other than CPUs pack to a single length, that of the longest sequence. Whether sequences are
packed depends on the training data alone, since dropout masks are then drawn by real position.
"""

import math
from typing import NamedTuple

import numpy as np
from ml_collections import config_dict

from lra.arrays import permutation
from lra.process import cores
from models.machine import this_backend

# Elements of an activation array of the model's width per core: 1 MiB of float32, its L2 cache.
_ELEMENTS_PER_CORE = 2**18
# Bucket ends are multiples of this, so that blocks of exact attention and landmark segments fit.
_STEP = 256
_PACKED_STEP = 64  # bucket ends of packed sequences are multiples of this
# Limits, since each bucket is compiled, in training together with its backward pass.
_MAX_BUCKETS, _MAX_EVAL_BUCKETS = 4, 8
_MIN_PADDED = 1024  # shorter padded lengths are not cut: compilation would cost more than it saves
_MIN_SAVING = 0.1  # fraction of positions that cutting must save on average


class Buckets(NamedTuple):
    """Lengths to which batches are cut.

    Attributes:
        ends: Lengths, ascending, the last one long enough for any sequence.
        packed: Whether batches are packed to these lengths instead.
    """

    ends: tuple[int, ...]
    packed: bool = False


class Plan(NamedTuple):
    """How the batches of a run are divided and cut.

    Attributes:
        parts: Number of parts of a training batch, processed one after another.
        eval_batch: Number of examples in an evaluation batch.
        buckets: Lengths to which parts of a training batch are cut.
        eval_buckets: Lengths to which evaluation batches are cut.
    """

    parts: int
    eval_batch: int
    buckets: Buckets
    eval_buckets: Buckets


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
    parts = number_of_parts(
        config.train.batch_size, elements, devices=devices, at_least=config.train.microbatches
    )
    eval_batch = config.train.eval_batch_size
    eval_batch //= number_of_parts(eval_batch, elements, devices=devices)
    training, evaluation = Buckets((padded,)), Buckets((padded,))
    if cut_padding:
        training, evaluation = choose_buckets(lengths, padded, longest=longest, devices=devices)
    if parts == 1:  # a whole batch nearly always has a sequence of about full length
        training = training._replace(ends=training.ends[-1:])
    return Plan(parts, eval_batch, training, evaluation)


def number_of_parts(batch: int, elements: int, *, devices: int = 1, at_least: int = 1) -> int:
    """Number of parts to process a batch in, a divisor of `batch` and multiple of `at_least`.

    Args:
        batch: Number of examples in the batch.
        elements: Number of elements in one activation of one example: positions times width.
        devices: Number of devices that share the batch or the seeds.
        at_least: Number of parts that the configuration asks for, a divisor of `batch`.
    """
    if devices > 1 or this_backend() != "cpu":
        return at_least
    examples_in_cache = cores() * _ELEMENTS_PER_CORE // elements
    small = [n for n in range(1, math.isqrt(batch) + 1) if batch % n == 0]
    divisors = sorted({*small, *(batch // n for n in small)})
    candidates = [n for n in divisors if n % at_least == 0]
    return next((n for n in candidates if batch // n <= examples_in_cache), batch)


def choose_buckets(
    lengths: np.ndarray, padded: int, *, longest: int | None = None, devices: int = 1
) -> tuple[Buckets, Buckets]:
    """Buckets for training and for evaluations, which may have more of them.

    Where cutting or packing saves too little, the only bucket is the padded length. Whether packing
    does is judged on every device by the buckets a CPU would use for the training examples; a
    device with a single bucket may gain less.

    Args:
        lengths, padded, devices: As of `plan_batches`.
        longest: As of `plan_batches`. If given, batches are packed, else cut.
    """
    uncut = Buckets((padded,))
    if padded < _MIN_PADDED:
        return uncut, uncut
    # Devices other than a single CPU have one bucket, which holds the longest sequence.
    one_bucket = devices > 1 or this_backend() != "cpu"
    counts = (1, 1) if one_bucket else (_MAX_BUCKETS, _MAX_EVAL_BUCKETS)
    if longest is None:
        ends = (_ends(lengths, padded, padded, count, _STEP) for count in counts)
        training, evaluation = (
            Buckets(e) if _saves_enough(lengths, e, padded) else uncut for e in ends
        )
        return training, evaluation
    on_cpu = _ends(lengths, int(lengths.max()), padded, _MAX_BUCKETS, _PACKED_STEP)
    if not _saves_enough(lengths, on_cpu, padded):
        return uncut, uncut
    ends = (_ends(lengths, longest, padded, count, _PACKED_STEP) for count in counts)
    training, evaluation = (Buckets(e, packed=True) for e in ends)
    return training, evaluation


def _ends(lengths: np.ndarray, longest: int, padded: int, count: int, step: int) -> tuple[int, ...]:
    """At most `count` bucket ends, multiples of `step`, the last of which holds the longest."""
    quantiles = np.quantile(lengths, np.arange(1, count) / count)
    ends = {step * max(1, math.ceil(length / step)) for length in (*quantiles, longest)}
    return tuple(sorted({min(end, padded) for end in ends}))


def _saves_enough(lengths: np.ndarray, ends: tuple[int, ...], padded: int) -> bool:
    return bucket_ends(lengths, ends).mean() <= (1 - _MIN_SAVING) * padded


def bucket_ends(lengths: np.ndarray, ends: tuple[int, ...]) -> np.ndarray:
    """End of the bucket that each length falls into."""
    return np.asarray(ends)[np.searchsorted(ends, lengths)]


def evaluation_order(lengths: np.ndarray, batch: int) -> np.ndarray:
    """Sort examples by length, longest first, and shuffle the full batches.

    Calls of an evaluation, of several batches each, then take about equally long.
    """
    order = np.argsort(-lengths, kind="stable")
    num_full = len(order) // batch
    full, rest = np.split(order, [num_full * batch])
    shuffled = full.reshape(num_full, batch)[permutation(num_full, 0, 0)]
    return np.concatenate([shuffled.ravel(), rest])
