"""Dropout of activations and of attention weights, with masks that are pure functions of a key.

A mask has rows of entries, and the key gives each row a seed. Entries i and i + p, where p is a
power of 2 and i & p is 0, share number i of that seed's SplitMix generator (Steele, Lea and Flood
2014, doi 10.1145/2660193.2660195; in 32 bits, with the finaliser of MurmurHash3)

    z = seed + i * 0x9E3779B9
    z = (z ^ z >> 16) * 0x85EBCA6B    z = (z ^ z >> 13) * 0xC2B2AE35    z ^ z >> 16

of which i takes the lower half and i + p the upper. An entry is kept if its half is at least
`dropout`, as a fraction of 2^16. In masks of activations p is 1, in those of attention weights 8:
then one thread of a GPU kernel holds both entries and computes their number once, since a thread
holds neighbours in a row of a product's result, and every eighth row.

An entry thus takes a few 32-bit operations and need not be stored: it is computed where it is used,
and does not depend on the blocks that attention is cut into. All seeds lie on one cycle of
2^32 numbers, so two rows whose seeds are close on it share entries, shifted: of N rows of L entries
a share of 1 - exp(-2 N L / 2^32) has such a neighbour, mostly of another example. That is 12 % of
the rows of attention weights in one layer and batch of ListOps, 63 % in those of Retrieval, and
below 2 % of the rows of activations. Bits drawn
with `jax.random` took half the time of attention with dropout: XLA computes them in a separate loop
and writes them to memory.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from models.dtypes import accumulation_dtype
from models.keys import draw, one_per_example

_LEVELS = 2**16
_STEP = np.uint32(0x9E3779B9)
_APART, WEIGHTS_APART = 1, 8  # distance p of entries that share a number


def dropout(
    x: Float[Array, "*shape"], rate: float, key: jax.Array | None
) -> Float[Array, "*shape"]:
    """Zero entries with probability `rate` and scale the others up; identity without a key."""
    if key is None or rate == 0:
        return x
    return dropped(x, rate, row_seeds(key, x.shape[:-1]))


def dropped(
    x: Float[Array, "*rows entries"], rate: float, seeds: UInt32[Array, "*rows"]
) -> Float[Array, "*rows entries"]:
    """Apply dropout with the mask whose rows have these seeds."""
    # Dividing in 16 bits would round the probability, and so scale all entries by too much.
    wide = x.astype(accumulation_dtype(x.dtype))
    scaled = (wide / keep_probability(rate)).astype(x.dtype)
    entries = jnp.expand_dims(jnp.arange(x.shape[-1], dtype=jnp.int32), range(seeds.ndim))
    return jnp.where(keep_entries(seeds[..., None], entries, rate), scaled, 0)


def keep_probability(dropout: float) -> float:
    """Return the probability that an entry is kept: 1 - dropout, rounded to 1/2^16."""
    return 1 - _threshold(dropout) / _LEVELS


def row_seeds(key: jax.Array, shape: tuple[int, ...]) -> UInt32[Array, "*shape"]:
    """Draw one seed per row of `shape`; of keys [batch], each draws the seeds of its example.

    The seeds of a shorter example (positions are its first axis) are a prefix of a longer one's.
    """
    if not one_per_example(key):
        return jax.random.bits(key, shape, jnp.uint32)
    if len(key) != shape[0]:
        raise ValueError(f"{len(key)} keys for {shape[0]} examples")
    return draw(lambda k: row_seeds(k, shape[1:]), key)


def weight_seeds(key: jax.Array, shape: tuple[int, int, int]) -> UInt32[Array, "*shape"]:
    """Draw seeds of attention weights [batch, keys, heads]: one per key and head.

    The seeds of a shorter sequence are a prefix of a longer one's.
    """
    return row_seeds(key if one_per_example(key) else jax.random.split(key, shape[0]), shape)


def keep_weights(
    seeds: UInt32[Array, "batch keys heads"], queries: Int[Array, " queries"], dropout: float
) -> Bool[Array, "batch heads keys queries"]:
    """Which attention weights are kept; the row of a key and head has an entry per query."""
    seeds = jnp.swapaxes(seeds, 1, 2)
    return keep_entries(seeds[..., None], queries[None, None, None], dropout, WEIGHTS_APART)


def seeds_from(
    seeds: UInt32[Array, "*shape"], first: Int[Array, ""] | int
) -> UInt32[Array, "*shape"]:
    """Return seeds whose entry i is entry `first` + i of `seeds`; `first` is a multiple of 16."""
    return seeds + jnp.asarray(first).astype(jnp.uint32) * _STEP


def keep_entries(
    seeds: UInt32[Array, "*#shape"],
    entries: Int[Array, "*#shape"],
    dropout: float,
    apart: int = _APART,
) -> Bool[Array, "*shape"]:
    """Whether these entries of the rows with these seeds are kept; `apart` is p above."""
    upper = (entries & apart) != 0
    z = seeds + (entries & ~apart).astype(jnp.uint32) * _STEP
    z = (z ^ (z >> 16)) * jnp.uint32(0x85EBCA6B)
    z = (z ^ (z >> 13)) * jnp.uint32(0xC2B2AE35)
    z = z ^ (z >> 16)
    # With its half in the upper bits, the lower bits do not affect the comparison.
    return jnp.where(upper, z, z << 16) >= jnp.uint32(_threshold(dropout) << 16)


def _threshold(dropout: float) -> int:
    return min(round(dropout * _LEVELS), _LEVELS - 1)
