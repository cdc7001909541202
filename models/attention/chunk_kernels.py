"""Reformer's attention in three GPU kernels, on positions left in their order.

The same numbers as `models.attention.chunk_pairs` gives for sorted copies, but nothing is copied
or sorted except the positions: a program fetches the rows of its chunk, and of the one before it in
the ring, by their positions, and puts its results back by them. In a round every position is in one
chunk, so that no two programs write the same row: there are no atomic additions, and results are
deterministic.

The first kernel numbers the buckets. The second attends, round by round: a program per chunk and
head holds the chunk's scores in registers and writes its outputs o_r and their logarithmic
denominators z_r, whose combination over rounds is left to XLA:

    out_i = sum_r o_r(i) exp(z_r(i) - z_i)        z_i = log sum_r exp(z_r(i))

So out_i is the softmax over all that i sees in any round, as often as it sees it, and the backward
pass needs neither o_r nor z_r. With g the gradient of out and P_ij = exp(s_ij - z_i):

    ds_ij = P_ij (g_i . v_j - g_i . out_i),  0 where s_ij is a constant
    dq_i = sum_j ds_ij k_j      dk_j = sum_i ds_ij q_i      dv_j = sum_i P_ij g_i

The third kernel computes them for a chunk, whose rows are seen by its own queries and by those of
the chunk after it, and see its own keys and those of the chunk before it: three blocks of scores.
Each round's gradients are rounded to the inputs' format, and XLA adds them up.

Most programs find no padding and only chunks of one round, where a token stands once; they compute
no masks but that of the token itself. The others do in a loop over their blocks, and chunks of
padding are written as zeros, as far as no real token is near.

Where a token sees only itself, z_i is so large that it is rounded by up to 0.006, and the token's
dv by as much of itself. This takes a sequence of one token.

Time O(n H c D) for n positions, H rounds, chunks of c and width D; memory O(n H D). Sums are
float32. Reverse mode only (`jax.custom_vjp`).
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int, UInt

from models.attention.blocks import padded_to
from models.attention.chunk_pairs import KEY_EPSILON
from models.attention.contract import Heads, Mask
from models.attention.kernels import LEAST_SIDE

_LOG2E = math.log2(math.e)
# Scores of the token itself and of padding, in effect those of `chunk_pairs`. Powers of two have an
# exact product with log2 e, which is therefore the same in a fused multiplication and subtraction.
_SELF, _LOWEST = -(2.0**17), -(2.0**120)
_WARPS, _STAGES = 4, 1  # no loop is long enough for stages


def bucket_kernel(
    q: Heads,
    mask: Mask,
    rotations: Float[Array, "*batch heads head_dim hashes half_buckets"],
    factors: tuple[int, ...],
    *,
    padded: int,
    block: int,
    interpret: bool = False,
) -> UInt[Array, "batch heads hashes padded"]:
    """`bucket * padded + position` for each position, with the buckets of `lsh_buckets`.

    Args:
        q, mask, rotations, factors: see `models.attention.reformer.lsh_buckets`.
        padded: the length, completed with padding.
        block: the positions of a program, a power of two that divides `padded`.
        interpret: whether to run the kernel as JAX operations, on any device, slowly.
    """
    batch, _, heads, _ = q.shape
    hashes = rotations.shape[-2]
    ends = [sum(factor // 2 for factor in factors[: i + 1]) for i in range(len(factors))]
    parts = jnp.split(jnp.moveaxis(rotations, -2, -3), ends[:-1], axis=-1)
    parts = [_whole_block(x.astype(jnp.float32)) for x in parts]
    real = padded_to(mask.astype(jnp.int32), padded)

    def rotation(x: Array) -> pl.BlockSpec:
        if x.ndim == 4:
            return pl.BlockSpec((None, *x.shape[1:]), lambda i, head, b: (head, 0, 0, 0))
        return pl.BlockSpec((None, None, *x.shape[2:]), lambda i, head, b: (b, head, 0, 0, 0))

    return pl.pallas_call(
        functools.partial(_number_buckets, factors=factors, padded=padded),
        grid=(padded // block, heads, batch),
        in_specs=[
            pl.BlockSpec((None, block), lambda i, head, b: (b, i)),
            _rows_of(q),
            *map(rotation, parts),
        ],
        out_specs=pl.BlockSpec((None, None, hashes, block), lambda i, head, b: (b, head, 0, i)),
        out_shape=jax.ShapeDtypeStruct((batch, heads, hashes, padded), jnp.uint32),
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=interpret,
    )(real, q, *parts)


def _whole_block(x: Array) -> Array:
    """Completes the last axis with columns of 0, whose products are the first largest nowhere."""
    size = max(LEAST_SIDE, pl.next_power_of_2(x.shape[-1]))
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1])])


def _number_buckets(real_ref, q_ref, *refs, factors, padded):
    *rotation_refs, numbers_ref = refs
    hashes, size = numbers_ref.shape
    positions = pl.program_id(0) * size + jnp.arange(size, dtype=jnp.int32)
    q = q_ref[jnp.minimum(positions, q_ref.shape[0] - 1), :].astype(jnp.float32)
    real = real_ref[...] > 0
    for each in range(hashes):
        bucket, step = jnp.zeros(size, jnp.int32), 1
        for ref, factor in zip(rotation_refs, factors, strict=True):
            bucket += step * _first_largest(_product(q, ref[each]), factor // 2)
            step *= factor
        bucket = jnp.where(real, bucket, step).astype(jnp.uint32)
        numbers_ref[each, :] = bucket * jnp.uint32(padded) + positions.astype(jnp.uint32)


def _first_largest(x: Array, half: int) -> Array:
    """The argmax over [x, -x] of the first `half` columns, where the others are 0."""
    index = jnp.arange(x.shape[1], dtype=jnp.int32)[None, :]
    peak = jnp.max(jnp.abs(x), axis=1)[:, None]
    candidates = jnp.where(x == peak, index, jnp.where(-x == peak, index + half, 2 * half))
    return jnp.min(candidates, axis=1)


class _Options(NamedTuple):
    chunk_length: int
    interpret: bool


def chunk_attention(
    q: Heads,
    v: Heads,
    order: Int[Array, "batch heads hashes padded"],
    count: Int[Array, " batch"],
    *,
    chunk_length: int,
    interpret: bool = False,
) -> Heads:
    """Attention of every chunk to itself and to the chunk before it, its rounds combined.

    Args:
        q, v: see `models.attention.contract`; what they hold at padding is not used.
        order: the sorted positions of each round; those from the length on are padding.
        count: the number of real tokens, which are the first in every round.
        chunk_length: a power of two that divides `padded`.
        interpret: whether to run the kernels as JAX operations, on any device, slowly.
    """
    return _attention(q, v, order, count[:, None], _Options(chunk_length, interpret))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attention(q, v, order, count, options):
    return _forward(q, v, order, count, options)[0]


def _forward(q, v, order, count, options):
    length = q.shape[1]
    out, total = _call(
        functools.partial(_attend, size=options.chunk_length),
        [order, count, q, v],
        [(q.shape[3:], q.dtype), ((), jnp.float32)],
        options,
    )
    out, total = out[:, :, :length], total[:, :, :length]
    peak = jnp.max(total, axis=1)
    shares = jnp.exp2(total - peak[:, None])
    sums = jnp.sum(shares, axis=1)
    weighed = jnp.sum(shares[..., None] * out.astype(jnp.float32), axis=1)
    out = (weighed / sums[..., None]).astype(q.dtype)
    return out, (q, v, order, count, out, peak + jnp.log2(sums))


def _backward(options, saved, g):
    q, v, order, count, out, total = saved
    gradients = _call(
        functools.partial(_attend_backward, size=options.chunk_length),
        [order, count, q, v, g, out, total],
        [(x.shape[3:], x.dtype) for x in (q, v)],
        options,
    )
    dq, dv = (jnp.sum(x[:, :, : q.shape[1]], axis=1, dtype=jnp.float32) for x in gradients)
    # XLA would keep the sums in float32, since the gradient of a bias sums them up again.
    dq, dv = jax.lax.optimization_barrier((dq.astype(q.dtype), dv.astype(v.dtype)))
    return dq, dv, None, None


_attention.defvjp(_forward, _backward)


def _call(kernel: Any, inputs: Sequence[Array], outputs: Sequence[tuple], options: _Options):
    """Runs a program for each chunk of every round, head and example.

    Args:
        inputs: `order`, `count` and arrays [batch, length, heads(, head_dim)]; a program gets all
            positions of its head.
        outputs: the shape of a position's entry, and the dtype, of arrays
            [batch, hashes, padded, heads, ...]; a program gets all positions of its head and round.
    """
    order, count, *rows = inputs
    batch, heads, hashes, padded = order.shape
    flat = order.reshape(batch, heads, -1)

    def of_round(shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec(
            (None, None, padded, None, *shape),
            lambda i, number, head, b: (b, number, 0, head, *(0 for _ in shape)),
        )

    return pl.pallas_call(
        kernel,
        # Programs of a head come one after the other: they share what they read.
        grid=(padded // options.chunk_length, hashes, heads, batch),
        in_specs=[
            pl.BlockSpec((None, None, flat.shape[2]), lambda i, number, head, b: (b, head, 0)),
            pl.BlockSpec((None, 1), lambda i, number, head, b: (b, 0)),
            *map(_rows_of, rows),
        ],
        out_specs=[of_round(shape) for shape, _ in outputs],
        out_shape=[
            jax.ShapeDtypeStruct((batch, hashes, padded, heads, *shape), dtype)
            for shape, dtype in outputs
        ],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=options.interpret,
    )(flat, count, *rows)


def _rows_of(x: Array) -> pl.BlockSpec:
    """All positions of a program's head and example, of [batch, length, heads(, head_dim)]."""
    shape = (None, x.shape[1], None, *x.shape[3:])

    def index(*of: Any) -> tuple:
        *_, head, example = of
        return (example, 0, head, *(0 for _ in x.shape[3:]))

    return pl.BlockSpec(shape, index)


class _Chunk(NamedTuple):
    """The rows of a chunk.

    Attributes:
        positions: in the sequence; those from the length on are padding.
        start: the number of the first row in its round.
        count: the number of real rows, the first of the round.
        masked: whether rows may be padding, or stand in two chunks of different rounds.
    """

    positions: Array
    start: Array
    count: Array
    masked: bool

    @property
    def real(self) -> Array:
        return self.start + _numbers(self.positions.shape[0]) < self.count

    def load(self, ref: Any) -> Array:
        """The chunk's rows, 0 at padding."""
        return self._load(ref, self.real if self.masked else None)

    def load_all(self, ref: Any) -> Array:
        """The chunk's rows (or numbers), 0 only from the length on."""
        return self._load(ref, self.positions < ref.shape[0] if self.masked else None)

    def _load(self, ref: Any, where: Array | None) -> Array:
        rest = (slice(None),) * (len(ref.shape) - 1)
        if where is None:
            return ref[(self.positions, *rest)]
        # The interpreter has no masked loads of rows by their positions.
        x = ref[(jnp.minimum(self.positions, ref.shape[0] - 1), *rest)]
        return jnp.where(where.reshape(-1, *(1 for _ in rest)), x, 0)

    def masks(self, queries: "_Chunk") -> tuple[Array | None, Array | None]:
        """Where a query is the key, and which keys are real: [queries, keys]; None: no mask."""
        if self.masked:
            return queries.positions[:, None] == self.positions[None, :], self.real[None, :]
        numbers = _numbers(self.positions.shape[0])
        return numbers[:, None] == numbers[None, :] if queries is self else None, None


def _numbers(size: int) -> Array:
    return jnp.arange(size, dtype=jnp.int32)


class _Ring(NamedTuple):
    """All rounds' chunks of a head, and the place of this program's among them.

    Attributes:
        number: of this program's chunk in its round of `chunks`.
        before: the number of chunks in earlier rounds.
    """

    order_ref: Any
    count: Array
    size: int
    number: Array
    chunks: int
    before: Array

    def chunk(self, step: Any, *, masked: bool) -> _Chunk:
        """The chunk `step` after this program's; the last precedes the first."""
        ring = self.order_ref.shape[0] // self.size
        number = jax.lax.rem(self.before + self.number + (step + ring), ring)
        start = jax.lax.rem(number, self.chunks) * self.size
        at = pl.ds(number * self.size, self.size)
        return _Chunk(self.order_ref[at], start, self.count, masked)

    def all_real(self, last: int) -> Array:
        """Whether the chunks up to `last` after this one, and the one before, are of one round
        and without padding."""
        end = self.number + last
        inside = (self.number > 0) & (end < self.chunks)
        return inside & ((end + 1) * self.size <= self.count)

    def none_real(self) -> Array:
        """Whether this chunk is padding."""
        return self.number * self.size >= self.count


def _ring(order_ref: Any, count_ref: Any, size: int) -> _Ring:
    # Not inside branches or loops, where the interpreter knows no programs.
    number, chunks = pl.program_id(0), pl.num_programs(0)
    return _Ring(order_ref, count_ref[0], size, number, chunks, pl.program_id(1) * chunks)


def _attend(order_ref, count_ref, q_ref, v_ref, out_ref, total_ref, *, size):
    ring = _ring(order_ref, count_ref, size)
    # The chunk before the first is the last of a round.
    before = jnp.where(ring.number > 0, ring.number, ring.chunks) - 1
    all_real = ring.all_real(0)
    none_real = ring.none_real() & ring._replace(number=before).none_real()

    def attend(masked):
        here = ring.chunk(0, masked=masked)
        q = here.load(q_ref)

        def near(keys, state):
            """The online softmax: one block of scores at a time takes fewer registers."""
            peak, total, out = state
            scores = _scores(q, _unit(keys.load(q_ref)), *keys.masks(here))
            new_peak = jnp.maximum(peak, jnp.max(scores, axis=1) * _LOG2E)
            # exp is exactly 0 at padding, unless a query has nothing else; its values are 0 then.
            p = jnp.exp2(scores * _LOG2E - new_peak[:, None])
            shrink = jnp.exp2(peak - new_peak)
            total = total * shrink + jnp.sum(p, axis=1)
            added = _product(p.astype(v_ref.dtype), keys.load(v_ref))
            return new_peak, total, out * shrink[:, None] + added

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


def _attend_backward(*refs, size):
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
        ds = p * (_product(g, v, 1) - offset)
        ds = ds if is_self is None else jnp.where(is_self, 0, ds)
        return p.astype(q.dtype), ds.astype(q.dtype)

    def of_real_chunks():
        before, here, after = (ring.chunk(step, masked=False) for step in (-1, 0, 1))
        # As queries of the chunk before and of this one, as keys of this one and the one after.
        queries, keys, keys_before = queries_of(here), keys_of(here), keys_of(before)
        _, ds = weights(queries, keys_before, *before.masks(here))
        dq = _product(ds, keys_before[0])
        p, ds = weights(queries, keys, *here.masks(here))
        dq += _product(ds, keys[0])
        dk, dv = _product(ds.T, queries[0]), _product(p.T, queries[1])
        queries_after = queries_of(after)
        p, ds = weights(queries_after, keys, *here.masks(after))
        dk += _product(ds.T, queries_after[0])
        dv += _product(p.T, queries_after[1])
        return dq, dk, dv

    def of_masked_chunks():
        """The same three blocks in a loop, which takes fewer registers."""

        def block(number, state):
            dq, dk, dv = state
            of_queries = ring.chunk(jnp.maximum(number, 1) - 1, masked=True)
            of_keys = ring.chunk(jnp.minimum(number, 1) - 1, masked=True)
            queries, keys = queries_of(of_queries), keys_of(of_keys)
            p, ds = weights(queries, keys, *of_keys.masks(of_queries))
            dq += _product(jnp.where(number == 2, 0, ds), keys[0])
            p, ds = (jnp.where(number == 0, 0, x) for x in (p, ds))
            return dq, dk + _product(ds.T, queries[0]), dv + _product(p.T, queries[1])

        start = (jnp.zeros((size, q_ref.shape[1]), jnp.float32),) * 3
        return jax.lax.fori_loop(0, 3, block, start)

    def attend(masked):
        dq, dk, dv = of_masked_chunks() if masked else of_real_chunks()
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
    scores = _product(q, k, 1)
    if is_self is not None:
        scores = jnp.where(is_self, _SELF, scores)
    return scores if is_real is None else jnp.where(is_real, scores, _LOWEST)


def _unit(q):
    """`unit_keys`."""
    wide = q.astype(jnp.float32)
    return (wide * (_inverse_root(wide) * q.shape[1] ** -0.5)[:, None]).astype(q.dtype)


def _pull_unit(q, dk):
    """The gradient of the queries from that of their keys."""
    wide, head_dim = q.astype(jnp.float32), q.shape[1]
    inverse = _inverse_root(wide)
    along = jnp.sum(wide * dk, axis=1) * (inverse * inverse * (1 / head_dim))
    return (dk - wide * along[:, None]) * (inverse * head_dim**-0.5)[:, None]


def _inverse_root(wide):
    return jax.lax.rsqrt(jnp.sum(wide * wide, axis=1) * (1 / wide.shape[1]) + KEY_EPSILON)


def _product(a, b, axis=0):
    """Contracts the last axis of `a` with one of `b`."""
    dimensions = (((1,), (axis,)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)
