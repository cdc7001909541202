"""Linear attention with elu + 1 as its feature map (Katharopoulos et al. 2020, arXiv 2006.16236).

    out_i = y_i / t_i,    [y_i, t_i] = f(q_i)^T M,    M = sum_j f(k_j) [v_j, 1]^T
    f(x) = elu(x) + 1 = x + 1 if x > 0, exp(x) otherwise          sums over the real positions

This is softmax attention with the weights f(q_i) . f(k_j) in place of exp(q_i . k_j / sqrt(D)).
They are positive, so nothing is added to the denominator t. (But they may underflow: a query whose
denominator is below 2e-31 in float32, as that of numbers below -40 or so in q and k, gets 0 and
passes no gradient on.) Backward, with g the gradient of out:

    e_i  = [g_i, -g_i . out_i] / t_i              dM   = sum_i f(q_i) e_i^T
    df(q_i) = M e_i        df(k_j) = dM [v_j, 1]        [dv_j, .] = dM^T f(k_j)

As an extra column, the denominator needs no separate product. Beside the inputs, only M, out and t
are kept for the backward pass; features are recomputed. On a CPU both passes go over the positions
in blocks that stay in the cache; elsewhere the whole length is one block.

Complexity per head, with length n: time O(n D^2), memory O(n D + D^2).

Differences. The PyTorch code behind Table 3 of arXiv 2102.03902 (mlpen/Nystromformer, LRA/code,
its `linear`) has no denominator. It scales the features of q and k by n^(-1/4) each, n being the
padded length, so its outputs grow with the number of tokens and depend on the amount of padding.
The code of arXiv 2006.16236 adds 1e-6 to the denominator.

The output does not depend on the amount of padding. Reverse mode only (`jax.custom_vjp`): no
`jax.jvp`.
"""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from models.attention.blocks import read_block, restored, stored, swap_heads, write_block
from models.attention.contract import Attention, Heads, Mask, check_inputs
from models.attention.padding import padded, zeroed
from models.dtypes import accumulation_dtype, least_denominator
from models.machine import Machine, this_machine

# Size of one block's features, for all sequences and heads together. On one CPU core, at batch 1
# and length 2,048, 2 heads of 32 take three quarters of the time they take with blocks an eighth of
# this size; for 12 heads of 64 it matters little.
_CPU_BLOCK_BYTES = 2**19
_SMALLEST = 16


def block_of(shape: tuple[int, int, int, int], itemsize: int, *, machine: Machine) -> int:
    """Return the number of positions in a block, for q of this shape.

    On a CPU it is a power of two, so that it divides most lengths, or the length if that is less.
    """
    batch, length, heads, head_dim = shape
    if machine.backend != "cpu":
        return length
    fitting = max(_SMALLEST, _CPU_BLOCK_BYTES // (batch * heads * head_dim * itemsize))
    return min(length, 2 ** (fitting.bit_length() - 1))


def linear_attention(
    q: Heads, k: Heads, v: Heads, mask: Mask, *, block: int | None = None
) -> Heads:
    """Attend with weights f(q) . f(k), computing everything in at least float32.

    Args:
        q, k, v, mask: See `models.attention.contract`; any length, any mask.
        block: Number of positions in a block; None: that of `block_of`.

    Raises:
        ValueError: Inputs that violate the contract.
    """
    check_inputs(q, k, v, mask)
    if block is None:
        itemsize = accumulation_dtype(q.dtype).itemsize
        block = block_of(q.shape, itemsize, machine=this_machine())
    length = q.shape[1]
    q, k, v, mask = (padded(x, block) for x in (q, k, v, mask))
    return _attention(q, k, v, mask, block)[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attention(q, k, v, mask, block):
    return _forward(q, k, v, mask, block)[0]


def _forward(q, k, v, mask, block):
    dtype = accumulation_dtype(q.dtype)
    batch, _, heads, head_dim = q.shape

    def add_keys(memory, arrays):
        k, v, mask = arrays
        return memory + _outer(_features(k, mask), _with_one(v, mask)), ()

    memory = jnp.zeros((batch, heads, head_dim, head_dim + 1), dtype)
    memory, _ = _over_blocks(add_keys, memory, (k, v, mask), (), block)

    def attend(_, arrays):
        result = swap_heads(jnp.einsum("bhld,bhde->bhle", _features(*arrays), memory))
        out, total = result[..., :-1], result[..., -1:]
        # Division by infinity gives 0, as do its gradients: at padding, where there is no real key,
        # and where features underflow.
        total = jnp.where(total >= least_denominator(dtype), total, jnp.inf)
        return (), (out / total, total)

    like = (q, jax.ShapeDtypeStruct((*q.shape[:3], 1), dtype))
    _, (out, total) = _over_blocks(attend, (), (q, mask), like, block)
    return out, (q, k, v, mask, memory, out, total)


def _backward(block, saved, g):
    q, k, v, mask, memory, out, total = saved

    def query_gradients(dmemory, arrays):
        q, mask, out, total, g = arrays
        queries, g = _features(q, mask), g.astype(total.dtype)
        mean = jnp.sum(g * out.astype(total.dtype), axis=-1, keepdims=True)
        errors = swap_heads(jnp.concatenate([g, -mean], axis=-1) / total)
        dqueries = jnp.einsum("bhle,bhde->bhld", errors, memory)
        return dmemory + _outer(queries, errors), (swap_heads(dqueries * _slope(queries)),)

    zeros = jnp.zeros_like(memory)
    dmemory, (dq,) = _over_blocks(query_gradients, zeros, (q, mask, out, total, g), (q,), block)

    def key_gradients(_, arrays):
        k, v, mask = arrays
        keys = _features(k, mask)
        dkeys = jnp.einsum("bhle,bhde->bhld", _with_one(v, mask), dmemory)
        dv = jnp.einsum("bhld,bhde->bhle", keys, dmemory[..., :-1])
        return (), (swap_heads(dkeys * _slope(keys)), swap_heads(dv))

    _, (dk, dv) = _over_blocks(key_gradients, (), (k, v, mask), (k, v), block)
    return dq, dk, dv, None


_attention.defvjp(_forward, _backward)


def _over_blocks(function, carry, arrays, like, block):
    """Scan `function(carry, blocks of arrays) -> carry, blocks of outputs` over the positions.

    Return the last carry and the outputs in the shapes and dtypes of `like`. The loop itself reads
    and writes blocks along axis 1, so no array has to be transposed.
    """
    length = arrays[0].shape[1]
    if length == block:
        carry, outputs = function(carry, arrays)
        return carry, tuple(y.astype(x.dtype) for x, y in zip(like, outputs, strict=True))

    def step(number, state):
        carry, results = state
        carry, outputs = function(carry, tuple(read_block(x, number, block, 1) for x in arrays))
        written = zip(results, outputs, strict=True)
        return carry, tuple(write_block(x, y, number, 1) for x, y in written)

    arrays = tuple(stored(x) for x in arrays)
    results = tuple(stored(jnp.zeros(x.shape, x.dtype)) for x in like)
    carry, results = jax.lax.fori_loop(0, length // block, step, (carry, results))
    return carry, tuple(restored(x) for x in results)


def _wide(x, mask):
    """`x` in at least float32, with 0 at padding."""
    return zeroed(x, mask).astype(accumulation_dtype(x.dtype))


def _features(x, mask):
    """f(x), head-major, and 0 at padding."""
    x = swap_heads(_wide(x, mask))
    return jnp.where(mask[:, None, :, None], jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0))), 0)


def _slope(features):
    """The derivative of f: 1 where f is above 1, f itself below."""
    return jnp.minimum(features, 1)


def _with_one(v, mask):
    """[v, 1], head-major; at padding the 1 is multiplied by features that are 0."""
    v = _wide(v, mask)
    return swap_heads(jnp.concatenate([v, jnp.ones_like(v[..., :1])], axis=-1))


def _outer(a, b):
    """Sums of outer products over the positions of a block."""
    return jnp.einsum("bhld,bhle->bhde", a, b)


class LinearAttention(Attention):
    """Linear attention; it has neither parameters nor options."""

    reads_positions = False
    why_not_causal = (
        "its sums over keys run over the whole sequence; a causal one needs running sums"
    )

    def __init__(
        self,
        *,
        length: int,
        heads: int,
        head_dim: int,
        layer: int = 0,
        shared: Attention | None = None,
        rngs: nnx.Rngs,
    ):
        """See `models.attention.make`; there are no options and no arrays."""

    def __call__(
        self, q: Heads, k: Heads, v: Heads, mask: Mask, *, key: jax.Array | None = None
    ) -> Heads:
        """Compute `linear_attention`; `key` is ignored.

        Raises:
            ValueError: Inputs that violate the contract.
        """
        return linear_attention(q, k, v, mask)
