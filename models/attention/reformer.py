"""Reformer: attention among positions sorted by a locality-sensitive hash (arXiv 2001.04451).

    bucket(q_i) = argmax [q_i R, -q_i R]    R random, one per head and round (and example)
    s_ij        = q_i . q_j / sqrt(|q_j|^2 + 1e-6 D),  s_ii = -1e5
    z_r(i)      = log sum over j in near_r(i) of exp(s_ij)
    o_r(i)      = sum over j in near_r(i) of exp(s_ij - z_r(i)) v_j
    out(i)      = sum over rounds r of softmax over r (z_r(i)) o_r(i)

Queries normalised to length 1 serve as keys. In each round the positions are sorted by bucket, then
by position, and cut into chunks of c; near_r(i) are the real tokens in i's chunk and in the one
before it, in the ring of all rounds' chunks (the last precedes the first; there a token can occur
in both chunks). A token attends to itself only if it sees no other. Padding has its own bucket,
after all others. A single chunk is neither hashed nor sorted: it is ordinary attention with shared
queries and keys.

Complexity per head of width D, with length n, H rounds and b = 2 n / c buckets: time
O(n H (c + sqrt(b)) D + n H log n), memory O(n H D): scores are computed one tile of chunks at a
time (`models.attention.reformer_chunks`), or in GPU registers
(`models.attention.reformer_kernels`).

Differences. The paper masks tokens of other buckets within the chunks, and subtracts the logarithm
of the number of rounds in which a pair meets (its appendix on multi-round attention). The code
behind Table 3 of arXiv 2102.03902 (mlpen/Nystromformer, with Hugging Face's LSH self-attention)
does neither, and nor does this: a token attends across buckets, and a pair that meets in two rounds
counts twice. That code draws rotations anew in every call, in evaluation too, and the whole batch
shares them; here training draws them for each example, and evaluation uses one fixed set. The
published code gives padding its own bucket only with a mask (no output depends on it). LRA's own
JAX code multiplies scores by sqrt(D), has no penalty for self, mask or normalisation, one round of
ten chunks and the same rotations everywhere, and misplaces its outputs (a missing transpose).

The amount of padding affects the output until it fills a chunk: the first chunk of a round looks
back to the last of the previous round, which holds the padding. The contents of padding have no
effect.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, UInt

from models import kernel_choice
from models.attention.blocks import swap_heads
from models.attention.contract import (
    Attention,
    Heads,
    Mask,
    Untrained,
    check_inputs,
    check_length,
    untrained_key,
)
from models.attention.hashing import bucket_factors, lsh_buckets
from models.attention.padding import padded_to, round_up, zeroed
from models.attention.permutation import permute
from models.attention.reformer_chunks import PADDING, SELF_SCORE, attend_chunk_pairs, unit_keys
from models.checks import check_positive
from models.dtypes import accumulation_dtype, common_dtype
from models.keys import draw
from models.machine import this_machine


def reformer_attention(
    q: Heads,
    v: Heads,
    mask: Mask,
    rotations: Float[Array, "*batch heads head_dim hashes half_buckets"],
    *,
    chunk_length: int,
    factors: tuple[int, ...] | None = None,
) -> Heads:
    """Attend within chunks of positions sorted by a hash; the queries also serve as keys.

    A length that is not a multiple of `chunk_length` is completed with padding; a length up to
    `chunk_length` is a single chunk. For `rotations` and `factors` see `lsh_buckets`.

    Raises:
        ValueError: More than 65,536 positions, more than 2^32 positions times buckets (including
            that of padding), rotations of another shape, or inputs that violate the contract.
    """
    check_inputs(q, q, v, mask)
    check_positive(chunk_length=chunk_length)
    factors = factors or (2 * rotations.shape[-1],)
    _check_rotations(rotations, q, factors)
    length = q.shape[1]
    if length <= chunk_length:
        q, v = zeroed(q, mask), zeroed(v, mask)
        all_heads = jax.vmap(_one_chunk, in_axes=(1, 1, None), out_axes=1)
        return jax.vmap(all_heads)(q, v, mask)
    padded, num_buckets = round_up(length, chunk_length), math.prod(factors)
    _check_sort_keys(padded, num_buckets)
    common = common_dtype(q.dtype, v.dtype)  # kernels take no mixed dtypes
    if kernel_choice.preferred_for_chunks(common, q.shape[-1], chunk_length, this_machine()):
        return attend_by_kernels(q, v, mask, rotations, chunk_length=chunk_length, factors=factors)
    dtype = q.dtype
    q, v = (zeroed(x.astype(common), mask) for x in (q, v))
    q, v, mask = (padded_to(x, padded) for x in (q, v, mask))
    buckets = lsh_buckets(q, mask, rotations, factors)

    sort_heads = jax.vmap(_sort_and_chunk, in_axes=(1, 1, None, 0, None))
    sort_batch = jax.vmap(sort_heads, in_axes=(0, 0, 0, 0, None))
    *arrays, inverse, order = sort_batch(q, v, mask, buckets, chunk_length)
    out, logsumexp = attend_chunk_pairs(*arrays)
    out = jax.vmap(jax.vmap(_combine_rounds))(out, logsumexp, inverse, order)
    return swap_heads(out)[:, :length].astype(dtype)


def attend_by_kernels(
    q: Heads,
    v: Heads,
    mask: Mask,
    rotations: Float[Array, "*batch heads head_dim hashes half_buckets"],
    *,
    chunk_length: int,
    factors: tuple[int, ...],
    interpret: bool = False,
) -> Heads:
    """`reformer_attention` of more than one chunk, by `models.attention.reformer_kernels`.

    `interpret` runs the kernels as JAX operations, on any device, slowly.
    """
    # Pallas is slow to import.
    from models.attention.reformer_kernels import bucket_kernel, chunk_attention

    padded = round_up(q.shape[1], chunk_length)
    unsorted = bucket_kernel(
        jax.lax.stop_gradient(q),
        mask,
        jax.lax.stop_gradient(rotations),
        factors,
        padded=padded,
        block=chunk_length,
        interpret=interpret,
    )
    order = _positions_in(jnp.sort(unsorted, axis=-1, stable=False))
    count = jnp.sum(mask, axis=1, dtype=jnp.int32)
    return chunk_attention(q, v, order, count, chunk_length=chunk_length, interpret=interpret)


def _check_rotations(rotations, q, factors):
    examples = rotations.shape[:-4]
    if examples not in ((), q.shape[:1]):
        raise ValueError(f"rotations {rotations.shape} for {len(q)} examples")
    expected = *q.shape[2:], rotations.shape[-2], sum(factors) // 2
    if rotations.shape[-4:] != expected:
        raise ValueError(
            f"rotations {rotations.shape} do not end with {expected} = [heads, head_dim, hashes, "
            "half of the sum of factors]"
        )


def _check_sort_keys(padded, num_buckets):
    """Those of 32 bits are `bucket * padded + position` and `position * padded + position`."""
    if max(padded, num_buckets + 1) * padded > 2**32:
        raise ValueError(
            "Reformer sorts 32-bit keys: at most 65536 positions, and positions x "
            f"buckets, padding's included, at most 2^32, not {padded} x {num_buckets + 1}; choose "
            "a larger chunk_length or a shorter length"
        )


def _one_chunk(
    q: Float[Array, "length head_dim"],
    v: Float[Array, "length head_dim"],
    real: Bool[Array, " length"],
) -> Float[Array, "length head_dim"]:
    """Attend within a sequence that is a single chunk."""
    dtype = accumulation_dtype(q.dtype)
    positions = jnp.arange(q.shape[0], dtype=jnp.int32)
    scores = jnp.einsum("qd,kd->qk", q, unit_keys(q), preferred_element_type=dtype)
    scores = jnp.where(real[None, :], scores, jnp.finfo(dtype).min)
    is_self = positions[:, None] == positions[None, :]
    weights = jax.nn.softmax(jnp.where(is_self, SELF_SCORE, scores), axis=-1)
    out = jnp.einsum("qk,kd->qd", weights.astype(v.dtype), v, preferred_element_type=dtype)
    return out.astype(q.dtype)


def _sort_and_chunk(
    q: Float[Array, "length head_dim"],
    v: Float[Array, "length head_dim"],
    real: Bool[Array, " length"],
    buckets: Int[Array, "hashes length"],
    chunk_length: int,
) -> tuple[Array, ...]:
    """One head's arguments of `attend_chunk_pairs`, then the inverse permutation and the order."""
    length = buckets.shape[1]
    order = _sorted_order(buckets)
    inverse = _sorted_order(order)

    def chunks(x: Array) -> Array:
        return x.reshape(-1, chunk_length, *x.shape[2:])

    sort = jax.vmap(permute, in_axes=(None, 0, 0))
    queries_values = chunks(sort(jnp.concatenate([q, v], axis=-1), order, inverse))
    # Padding is last in every round.
    sorted_real = jnp.arange(length, dtype=jnp.int32) < jnp.sum(real, dtype=jnp.int32)
    key_positions = chunks(jnp.where(sorted_real[None, :], order, PADDING))
    return queries_values, chunks(order), key_positions, inverse, order


def _combine_rounds(
    out: Float[Array, "chunks chunk head_dim"],
    logsumexp: Float[Array, "chunks chunk"],
    inverse: Int[Array, "hashes length"],
    order: Int[Array, "hashes length"],
) -> Float[Array, "length head_dim"]:
    """One head's outputs in sequence order, its rounds weighted by their denominators."""
    unsort = jax.vmap(permute)
    out = unsort(out.reshape(*inverse.shape, -1), inverse, order)
    logsumexp = unsort(logsumexp.reshape(inverse.shape), inverse, order)
    return jnp.einsum("rl,rld->ld", jax.nn.softmax(logsumexp, axis=0), out)


def _sorted_order(values: Int[Array, "hashes length"]) -> Int[Array, "hashes length"]:
    """Stable argsort of each row, by one sort of `value * length + position`.

    For a permutation this is its inverse.
    """
    length = values.shape[-1]
    positions = jnp.arange(length, dtype=jnp.uint32)[None, :]
    unique = values.astype(jnp.uint32) * jnp.uint32(length) + positions
    return _positions_in(jnp.sort(unique, axis=-1, stable=False))


def _positions_in(sort_keys: UInt[Array, "*axes length"]) -> Int[Array, "*axes length"]:
    """The positions encoded in sort keys `value * length + position`."""
    return (sort_keys % jnp.uint32(sort_keys.shape[-1])).astype(jnp.int32)


class ReformerAttention(Attention):
    """Reformer. Queries serve as keys (`shares_qk`): the encoder passes `k = q`.

    Options:
        num_hashes: Number H of hashing rounds; 2 in the benchmark's table.
        chunk_length: Length c of a chunk; 64 in the benchmark's table.

    The number of buckets is the largest power of two up to 2 * length / chunk_length, at least 2;
    it is the product of `factors`, one or two powers of two. In training every call draws rotations
    from its key. Evaluation uses `rotations` [heads, head_dim, num_hashes, half the sum of
    factors], which are untrained and saved with the model. There are no parameters.
    """

    shares_qk = True
    reads_positions = False
    why_not_causal = "its chunks are sorted by bucket, and no order is imposed within them"

    def __init__(
        self,
        *,
        length: int,
        heads: int,
        head_dim: int,
        layer: int = 0,
        shared: Attention | None = None,
        rngs: nnx.Rngs,
        num_hashes: int = 2,
        chunk_length: int = 64,
    ):
        """See `models.attention.make`; options above.

        Raises:
            ValueError: A size below 1, or a chunk longer than `length`.
        """
        check_positive(num_hashes=num_hashes, chunk_length=chunk_length)
        if chunk_length > length:
            raise ValueError(f"chunk_length {chunk_length} is larger than the length, {length}")
        self.length, self.chunk_length = length, chunk_length
        self.factors = bucket_factors(length, chunk_length)
        shape = (heads, head_dim, num_hashes, sum(self.factors) // 2)
        self.rotations = Untrained(jax.random.normal(untrained_key(rngs), shape, jnp.float32))

    def __call__(
        self, q: Heads, k: Heads, v: Heads, mask: Mask, *, key: jax.Array | None = None
    ) -> Heads:
        """Attend with new rotations if given a `key`, one draw per example if given keys [batch].

        `k` is not read, as it is `q`.

        Raises:
            ValueError: Inputs that violate the contract or exceed the module's length.
        """
        rotations = self.rotations[...]
        heads, head_dim, *_ = rotations.shape
        check_inputs(q, k, v, mask, heads=heads, head_dim=head_dim)
        if key is not None:
            shape, dtype = rotations.shape, rotations.dtype
            rotations = draw(lambda one: jax.random.normal(one, shape, dtype), key)
        length = q.shape[1]
        check_length(length, self.length)
        q, v, mask = (padded_to(x, self._padded(length)) for x in (q, v, mask))
        out = reformer_attention(
            q, v, mask, rotations, chunk_length=self.chunk_length, factors=self.factors
        )
        return out[:, :length]

    def _padded(self, length: int) -> int:
        """The length with a final chunk of padding, which acts like the module's full length."""
        chunks = -(-length // self.chunk_length) + 1
        return min(self.length, chunks * self.chunk_length)
