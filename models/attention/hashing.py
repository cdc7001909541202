"""Buckets of a locality-sensitive hash of angles (arXiv 1509.02897, 2001.04451).

    bucket(q) = argmax [q R, -q R]    R random, half as many columns as there are buckets

More than 2 c buckets, c the length of Reformer's chunks, are numbered by two hashes of about the
square root of their number each, so that hashing does not grow with the square of the length:
bucket = bucket_1 + b_1 bucket_2.
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
    """The number of buckets, as the one or two factors that Hugging Face's code chooses.

    Its other bound for a single factor, 2 sqrt(length / chunk_length), never decides.
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
    """The bucket of each position in each round, from 0; padding: the one after the last.

    Args:
        q, mask: see `models.attention.contract`.
        rotations: half as many columns as there are buckets, for each factor, one after another;
            shared by the batch or one array for each example.
        factors: even numbers whose product is the number of buckets; None: a single one.
    """
    factors = factors or (2 * rotations.shape[-1],)
    rotations = rotations.astype(accumulation_dtype(q.dtype))
    hash_heads = jax.vmap(functools.partial(_hash, factors=factors), in_axes=(1, 0))
    of_example = None if rotations.ndim == 4 else 0
    buckets = jax.vmap(hash_heads, in_axes=(0, of_example))(q, rotations)
    return jnp.where(mask[:, None, None, :], buckets, math.prod(factors))


def _hash(
    q: Float[Array, "length head_dim"],
    rotations: Float[Array, "head_dim hashes half_buckets"],
    *,
    factors: tuple[int, ...],
) -> Int[Array, "hashes length"]:
    *columns, _ = itertools.accumulate(factor // 2 for factor in factors)
    steps = [math.prod(factors[:i]) for i in range(len(factors))]

    def bucket(position: Float[Array, " head_dim"]) -> Int[Array, " hashes"]:
        x = jnp.einsum("d,drb->rb", position.astype(rotations.dtype), rotations)
        parts = jnp.split(x, columns, axis=-1)
        return sum(step * _first_largest(part) for step, part in zip(steps, parts, strict=True))

    return jax.lax.map(bucket, jax.lax.stop_gradient(q), batch_size=HASH_BLOCK).T


def _first_largest(x: Float[Array, "hashes half"]) -> Int[Array, " hashes"]:
    """The argmax over [x, -x], written as reductions that vectorise."""
    half = x.shape[-1]
    index = jnp.arange(half, dtype=jnp.int32)[None, :]
    peak = jnp.max(jnp.abs(x), axis=-1, keepdims=True)
    # The last index for what is no candidate: always one of a bucket, even if a compiler computes
    # x anew for the comparison and rounds otherwise (`models.largest`).
    candidates = jnp.where(x == peak, index, jnp.where(-x == peak, index + half, 2 * half - 1))
    return jnp.min(candidates, axis=-1)
