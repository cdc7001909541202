"""Programs of the kernels in `models.attention.reformer_kernels`.

Input references cover all positions of a program's head and example, output references those of its
round.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array

from models.attention.hashing import first_largest
from models.attention.reformer_chunks import KEY_EPSILON
from models.kernel_math import product

_LOG2E = math.log2(math.e)
# Scores of the token itself and of padding, equivalent to those of `reformer_chunks`. The product
# of a power of two and log2 e is exact, so a fused multiply-add gives the same result.
_SELF, _LOWEST = -(2.0**17), -(2.0**120)


def number_buckets(
    real_ref: jax.Ref, q_ref: jax.Ref, *refs: jax.Ref, factors: Sequence[int], padded: int
) -> None:
    """Write sort keys `bucket * padded + position` of a block of positions, for each round.

    Args:
        real_ref: Whether each position of the block is real.
        q_ref: All queries.
        *refs: Rotations of each factor, and the output [hashes, block].
        factors: Factors of the number of buckets.
        padded: Length including padding.
    """
    *rotation_refs, numbers_ref = refs
    hashes, size = numbers_ref.shape
    positions = pl.program_id(0) * size + jnp.arange(size, dtype=jnp.int32)
    q = q_ref[jnp.minimum(positions, q_ref.shape[0] - 1), :].astype(jnp.float32)
    real = real_ref[...] > 0
    for round_ in range(hashes):
        bucket, stride = jnp.zeros(size, jnp.int32), 1
        for ref, factor in zip(rotation_refs, factors, strict=True):
            bucket += stride * first_largest(product(q, ref[round_]), factor // 2)
            stride *= factor
        bucket = jnp.where(real, bucket, stride).astype(jnp.uint32)
        numbers_ref[round_, :] = bucket * jnp.uint32(padded) + positions.astype(jnp.uint32)


class _Chunk(NamedTuple):
    """Rows of a chunk.

    Attributes:
        positions: Positions of the rows in the sequence; those from the length on are padding.
        start: Index of the first row within its round.
        real_count: Number of real rows, which come first in the round.
        masked: Whether rows may be padding or occur in two chunks, of different rounds.
    """

    positions: Array
    start: Array
    real_count: Array
    masked: bool

    @property
    def real(self) -> Array:
        return self.start + _arange(self.positions.shape[0]) < self.real_count

    def load(self, ref: Any) -> Array:
        """Load the chunk's rows, 0 at padding."""
        return self._load(ref, self.real if self.masked else None)

    def load_all(self, ref: Any) -> Array:
        """Load the chunk's rows (or scalars), 0 only from the length on."""
        return self._load(ref, self.positions < ref.shape[0] if self.masked else None)

    def _load(self, ref: Any, where: Array | None) -> Array:
        rest = (slice(None),) * (len(ref.shape) - 1)
        if where is None:
            return ref[(self.positions, *rest)]
        # The interpreter does not support masked loads of rows by their positions.
        x = ref[(jnp.minimum(self.positions, ref.shape[0] - 1), *rest)]
        return jnp.where(where.reshape(-1, *(1 for _ in rest)), x, 0)

    def masks(self, queries: "_Chunk") -> tuple[Array | None, Array | None]:
        """Where the query is the key, and which keys are real: [queries, keys]; None: no mask."""
        if self.masked:
            return queries.positions[:, None] == self.positions[None, :], self.real[None, :]
        numbers = _arange(self.positions.shape[0])
        return numbers[:, None] == numbers[None, :] if queries is self else None, None


def _arange(size: int) -> Array:
    return jnp.arange(size, dtype=jnp.int32)


class _Ring(NamedTuple):
    """All rounds' chunks of a head, and the index of this program's chunk.

    Attributes:
        order_ref: Reference to the sorted positions of all rounds.
        real_count: Number of real tokens.
        size: Length of a chunk.
        number: Index of this program's chunk in its round.
        chunks: Number of chunks in a round.
        before: Number of chunks in earlier rounds.
    """

    order_ref: Any
    real_count: Array
    size: int
    number: Array
    chunks: int | Array
    before: Array

    def chunk(self, step: Any, *, masked: bool) -> _Chunk:
        """Return the chunk `step` after this program's; the last precedes the first."""
        ring = self.order_ref.shape[0] // self.size
        # All int32, also where Python's integers become 64-bit ones.
        step, ring, chunks = (jnp.asarray(x, jnp.int32) for x in (step, ring, self.chunks))
        number = jax.lax.rem(self.before + self.number + (step + ring), ring)
        start = jax.lax.rem(number, chunks) * self.size
        at = pl.ds(number * self.size, self.size)
        return _Chunk(self.order_ref[at], start, self.real_count, masked)

    def all_real(self, last: int) -> Array:
        """Whether the chunks from the previous to `last` after this are real and of one round."""
        end = self.number + last
        inside = (self.number > 0) & (end < self.chunks)
        return inside & ((end + 1) * self.size <= self.real_count)

    def none_real(self) -> Array:
        """Whether this chunk is padding."""
        return self.number * self.size >= self.real_count


def _ring(order_ref: Any, count_ref: Any, size: int) -> _Ring:
    # Not called inside branches or loops, where the interpreter does not support program ids.
    number, chunks = pl.program_id(0), pl.num_programs(0)
    return _Ring(order_ref, count_ref[0], size, number, chunks, pl.program_id(1) * chunks)


def attend_chunk(
    order_ref: jax.Ref,
    count_ref: jax.Ref,
    q_ref: jax.Ref,
    v_ref: jax.Ref,
    out_ref: jax.Ref,
    total_ref: jax.Ref,
    *,
    size: int,
) -> None:
    """Write o_r and z_r (to base 2) of a chunk of `size` queries, at their positions."""
    ring = _ring(order_ref, count_ref, size)
    # The chunk before the first of a round is the last of a round.
    before = jnp.where(ring.number > 0, ring.number, ring.chunks) - 1
    all_real = ring.all_real(0)
    none_real = ring.none_real() & ring._replace(number=before).none_real()

    def attend(masked):
        here = ring.chunk(0, masked=masked)
        q = here.load(q_ref)

        def near(keys, state):
            """A step of the online softmax: a single block of scores takes fewer registers."""
            peak, total, out = state
            scores = _scores(q, _unit(keys.load(q_ref)), *keys.masks(here))
            new_peak = jnp.maximum(peak, jnp.max(scores, axis=1) * _LOG2E)
            # exp is exactly 0 at padding, unless a query sees nothing else; its values are 0 then.
            p = jnp.exp2(scores * _LOG2E - new_peak[:, None])
            shrink = jnp.exp2(peak - new_peak)
            total = total * shrink + jnp.sum(p, axis=1)
            weighted = product(p.astype(v_ref.dtype), keys.load(v_ref))
            return new_peak, total, out * shrink[:, None] + weighted

        peak = jnp.full(size, _LOWEST * _LOG2E, jnp.float32)
        state = peak, jnp.zeros_like(peak), jnp.zeros((size, v_ref.shape[1]), jnp.float32)
        if masked:
            peak, total, out = jax.lax.fori_loop(
                0, 2, lambda i, state: near(ring.chunk(i - 1, masked=True), state), state
            )
        else:
            peak, total, out = near(here, near(ring.chunk(-1, masked=False), state))
        out_ref[here.positions, :] = (out * (1 / total)[:, None]).astype(out_ref.dtype)
        total_ref[here.positions] = peak + jnp.log2(total)

    pl.when(all_real)(functools.partial(attend, masked=False))
    pl.when(~all_real & ~none_real)(functools.partial(attend, masked=True))

    @pl.when(none_real)
    def _():
        here = ring.chunk(0, masked=True)
        out_ref[here.positions, :] = jnp.zeros((size, v_ref.shape[1]), out_ref.dtype)
        total_ref[here.positions] = jnp.full(size, _LOWEST * _LOG2E, jnp.float32)


def attend_backward(*refs: jax.Ref, size: int) -> None:
    """Write one round's contribution to the gradients of a chunk's q (also as keys) and v."""
    order_ref, count_ref, q_ref, v_ref, g_ref, out_ref, total_ref, dq_ref, dv_ref = refs
    ring = _ring(order_ref, count_ref, size)
    all_real, none_real = ring.all_real(1), ring.none_real()

    def queries_of(chunk):
        g, out = (chunk.load_all(x) for x in (g_ref, out_ref))
        offset = jnp.sum(g.astype(jnp.float32) * out.astype(jnp.float32), axis=1)
        return chunk.load(q_ref), g, offset[:, None], chunk.load_all(total_ref)[:, None]

    def keys_of(chunk):
        return _unit(chunk.load(q_ref)), chunk.load(v_ref)

    def weights(queries, keys, is_self, is_real):
        (q, g, offset, total), (k, v) = queries, keys
        p = jnp.exp2(_scores(q, k, is_self, is_real) * _LOG2E - total)
        ds = p * (product(g, v, 1) - offset)
        ds = ds if is_self is None else jnp.where(is_self, 0, ds)
        return p.astype(q.dtype), ds.astype(q.dtype)

    def gradients_unmasked():
        before, here, after = (ring.chunk(step, masked=False) for step in (-1, 0, 1))
        # As queries, of keys in the previous and this chunk; as keys, of queries in this and the
        # next chunk.
        queries, keys, keys_before = queries_of(here), keys_of(here), keys_of(before)
        _, ds = weights(queries, keys_before, *before.masks(here))
        dq = product(ds, keys_before[0])
        p, ds = weights(queries, keys, *here.masks(here))
        dq += product(ds, keys[0])
        dk, dv = product(ds.T, queries[0]), product(p.T, queries[1])
        queries_after = queries_of(after)
        p, ds = weights(queries_after, keys, *here.masks(after))
        dk += product(ds.T, queries_after[0])
        dv += product(p.T, queries_after[1])
        return dq, dk, dv

    def gradients_masked():
        """The same three blocks in a loop, which takes fewer registers."""

        def block(number, state):
            dq, dk, dv = state
            query_chunk = ring.chunk(jnp.maximum(number, 1) - 1, masked=True)
            key_chunk = ring.chunk(jnp.minimum(number, 1) - 1, masked=True)
            queries, keys = queries_of(query_chunk), keys_of(key_chunk)
            p, ds = weights(queries, keys, *key_chunk.masks(query_chunk))
            dq += product(jnp.where(number == 2, 0, ds), keys[0])
            p, ds = (jnp.where(number == 0, 0, x) for x in (p, ds))
            return dq, dk + product(ds.T, queries[0]), dv + product(p.T, queries[1])

        start = (jnp.zeros((size, q_ref.shape[1]), jnp.float32),) * 3
        return jax.lax.fori_loop(0, 3, block, start)

    def attend(masked):
        dq, dk, dv = gradients_masked() if masked else gradients_unmasked()
        here = ring.chunk(0, masked=masked)
        dq += _pull_unit(here.load(q_ref), dk)
        if masked:
            dq, dv = (jnp.where(here.real[:, None], x, 0) for x in (dq, dv))
        dq_ref[here.positions, :] = dq.astype(dq_ref.dtype)
        dv_ref[here.positions, :] = dv.astype(dv_ref.dtype)

    pl.when(all_real)(functools.partial(attend, masked=False))
    pl.when(~all_real & ~none_real)(functools.partial(attend, masked=True))

    @pl.when(none_real)
    def _():
        here = ring.chunk(0, masked=True)
        for ref in (dq_ref, dv_ref):
            ref[here.positions, :] = jnp.zeros((size, ref.shape[1]), ref.dtype)


def _scores(q, k, is_self, is_real):
    scores = product(q, k, 1)
    if is_self is not None:
        scores = jnp.where(is_self, _SELF, scores)
    return scores if is_real is None else jnp.where(is_real, scores, _LOWEST)


def _unit(q):
    """`models.attention.reformer_chunks.unit_keys`."""
    wide = q.astype(jnp.float32)
    return (wide * (_inverse_root(wide) * q.shape[1] ** -0.5)[:, None]).astype(q.dtype)


def _pull_unit(q, dk):
    """The gradient of the queries, given that of their keys."""
    wide, head_dim = q.astype(jnp.float32), q.shape[1]
    inverse = _inverse_root(wide)
    along = jnp.sum(wide * dk, axis=1) * (inverse * inverse * (1 / head_dim))
    return (dk - wide * along[:, None]) * (inverse * head_dim**-0.5)[:, None]


def _inverse_root(wide):
    return jax.lax.rsqrt(jnp.sum(wide * wide, axis=1) * (1 / wide.shape[1]) + KEY_EPSILON)
