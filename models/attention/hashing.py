"""Buckets of a locality-sensitive hash of angles (arXiv 1509.02897, 2001.04451).

    bucket(q) = argmax [q R, -q R]    R random, half as many columns as there are buckets

If there are more than 2 c buckets, with Reformer's chunk length c, two hashes of about the square
root of that number of buckets each are combined, bucket = bucket_1 + b_1 bucket_2, so that the cost
of hashing does not grow with the square of the length.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models.attention.contract import Heads, Mask
from models.dtypes import accumulation_dtype

HASH_BLOCK = 4096  # positions hashed at a time, so that memory stays linear in the length


def bucket_factors(length: int, chunk_length: int) -> tuple[int, ...]:
    """Return the number of buckets as one or two factors, chosen as in Hugging Face's code.

    The other bound there for a single factor, 2 sqrt(length / chunk_length), never matters.
    """
    power = int(2 * length // chunk_length).bit_length() - 1
    if 2**power <= 2 * chunk_length:
        return (2**power,)
    return 2 ** (power // 2), 2 ** (power - power // 2)


def lsh_buckets(
    q: Heads,
    mask: Mask,
    rotations: Float[Array, "*batch heads head_dim hashes half_buckets"],
    factors: tuple[int, ...] | None = None,
) -> Int[Array, "batch heads hashes length"]:
    """Return each position's bucket in each round, numbered from 0; padding has an extra last one.

    Args:
        q, mask: See `models.attention.contract`.
        rotations: Random rotations whose columns, half as many as buckets, are concatenated over
            the factors; one array for the batch or one per example.
        factors: Even numbers whose product is the number of buckets; None: a single factor.
    """
    factors = factors or (2 * rotations.shape[-1],)
    rotations = rotations.astype(accumulation_dtype(q.dtype))
    hash_heads = jax.vmap(functools.partial(_hash, factors=factors), in_axes=(1, 0))
    example_axis = None if rotations.ndim == 4 else 0
    buckets = jax.vmap(hash_heads, in_axes=(0, example_axis))(q, rotations)
    return jnp.where(mask[:, None, None, :], buckets, math.prod(factors))


def _hash(
    q: Float[Array, "length head_dim"],
    rotations: Float[Array, "head_dim hashes half_buckets"],
    *,
    factors: tuple[int, ...],
) -> Int[Array, "hashes length"]:
    strides = [math.prod(factors[:i]) for i in range(len(factors))]

    def bucket(query: Float[Array, " head_dim"]) -> Int[Array, " hashes"]:
        x = jnp.einsum("d,drb->rb", query.astype(rotations.dtype), rotations)
        firsts = (first_largest(part, part.shape[1]) for part in split_columns(x, factors))
        return sum(n * first for n, first in zip(strides, firsts, strict=True))

    return jax.lax.map(bucket, jax.lax.stop_gradient(q), batch_size=HASH_BLOCK).T


def split_columns(x: Float[Array, "*axes half_buckets"], factors: tuple[int, ...]) -> list[Array]:
    """Split the columns of rotations, or of products with them, into those of each factor."""
    *ends, _ = itertools.accumulate(factor // 2 for factor in factors)
    return jnp.split(x, ends, axis=-1)


def first_largest(x: Float[Array, "rows columns"], half: int) -> Int[Array, " rows"]:
    """Argmax over [x, -x] of the first `half` columns, by reductions that vectorise.

    Any further columns are 0. The kernels of `models.attention.reformer_kernels` use it too.
    """
    index = jnp.arange(x.shape[1], dtype=jnp.int32)[None, :]
    peak = jnp.max(jnp.abs(x), axis=1)[:, None]
    # Other entries get the last index, so the result is a valid bucket even if a compiler
    # recomputes x for the comparison with different rounding (`models.largest`).
    candidates = jnp.where(x == peak, index, jnp.where(-x == peak, index + half, 2 * half - 1))
    return jnp.min(candidates, axis=1)
