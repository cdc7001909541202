"""A pre-norm Transformer block: multi-head attention, then an MLP.

    x = x + dropout(output(attention(LN x)))
    x = x + dropout(W2 dropout(gelu(W1 LN x)))

On one GPU, in 16 bits, the kernels of `models.fused` compute everything except attention for sizes
at which `models.kernel_choice` prefers them.
"""

from collections.abc import Sequence

import jax
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from models import kernel_choice
from models.attention.contract import Attention
from models.attention.packing import Packing
from models.dense import Linear
from models.dropout import dropout, row_seeds
from models.keys import split
from models.machine import this_machine

EPSILON = 1e-5  # of LayerNorm, PyTorch's default


class LayerNorm(nnx.LayerNorm):
    """`nnx.LayerNorm` computed in at least float32, including its parameters' gradients.

    The variance is the mean of (x - mean)^2, as in `models.fused`: Flax's default, E[x^2] - E[x]^2,
    has an error that grows as (mean / std)^2.
    """

    def __init__(self, dim: int, *, rngs: nnx.Rngs):
        super().__init__(dim, epsilon=EPSILON, use_fast_variance=False, rngs=rngs)

    def __call__(self, x: Float[Array, "*shape dim"]) -> Float[Array, "*shape dim"]:
        """Normalise the last axis; the result has the dtype of `x`."""
        # Flax mixes the dtypes of x and of its sums, which the caller may have forbidden.
        with jax.numpy_dtype_promotion("standard"):
            return super().__call__(x).astype(x.dtype)


class MultiHeadAttention(nnx.Module):
    """Projects to queries, keys and values, attends, and projects back.

    An attention that ties keys to queries (`shares_qk`) gets one projection for both, without a
    bias, as in the reference Reformer. (The reference's value projection has no bias either; here
    it has one: attention weights sum to 1, so it merely adds a constant to the output's bias.)
    """

    def __init__(
        self,
        attention: Attention,
        *,
        dim: int,
        heads: int,
        head_dim: int,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        width = heads * head_dim
        tied = attention.shares_qk
        self.query = Linear(dim, width, bias=not tied, dtype=dtype, rngs=rngs)
        self.key = None if tied else Linear(dim, width, dtype=dtype, rngs=rngs)
        self.value = Linear(dim, width, dtype=dtype, rngs=rngs)
        self.output = Linear(width, dim, dtype=dtype, rngs=rngs)
        self.attention = attention
        self.heads = heads

    @property
    def projections(self) -> tuple[Linear, ...]:
        """The projections to queries, keys and values; a single one for tied queries and keys."""
        return tuple(p for p in (self.query, self.key, self.value) if p is not None)

    def __call__(
        self,
        x: Float[Array, "batch length dim"],
        mask: Bool[Array, "batch length"],
        key: Array | None = None,
        packing: Packing | None = None,
    ) -> Float[Array, "batch length dim"]:
        """Attend between the positions of `x`, all arguments as of `Block`."""
        return self.output(self.attend([p(x) for p in self.projections], mask, key, packing))

    def attend(
        self,
        projected: Sequence[Float[Array, "batch length width"]],
        mask: Bool[Array, "batch length"],
        key: Array | None,
        packing: Packing | None = None,
    ) -> Float[Array, "batch length width"]:
        """Attend between the results of `projections`; return heads side by side.

        With a `packing`, `projected` is packed and the mask is not read.
        """
        heads = [y.reshape(*y.shape[:-1], self.heads, -1) for y in projected]
        q, k, v = heads[0], heads[-2], heads[-1]
        if packing is None:
            out = self.attention(q, k, v, mask, key=key)
        else:
            out = self.attention.attend_packed(q, k, v, packing, key=key)
        return out.reshape(*out.shape[:2], -1)


class Block(nnx.Module):
    """Pre-norm block: attention, then a two-layer MLP with the exact GELU."""

    def __init__(
        self,
        attention: Attention,
        *,
        dim: int,
        mlp_dim: int,
        heads: int,
        head_dim: int,
        dropout: float,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        self.attention_norm = LayerNorm(dim, rngs=rngs)
        self.attention = MultiHeadAttention(
            attention, dim=dim, heads=heads, head_dim=head_dim, dtype=dtype, rngs=rngs
        )
        self.mlp_norm = LayerNorm(dim, rngs=rngs)
        self.mlp_in = Linear(dim, mlp_dim, dtype=dtype, rngs=rngs)
        self.mlp_out = Linear(mlp_dim, dim, dtype=dtype, rngs=rngs)
        self.dropout = dropout

    def __call__(
        self,
        x: Float[Array, "batch length dim"],
        mask: Bool[Array, "batch length"],
        key: Array | None = None,
        packing: Packing | None = None,
    ) -> Float[Array, "batch length dim"]:
        """Add the results of attention and MLP to `x`.

        Args:
            x: Activations.
            mask: Which positions are real; what the others get is arbitrary.
            key: PRNG key, or one per example, of dropout and attention; None in evaluation.
            packing: Given if `x` and `mask` are packed (`models.attention.packing`).
        """
        attention_key, *keys = split(key, 4)
        if self._is_fused(x):
            return self._fused(x, mask, attention_key, keys, packing)
        update = self.attention(self.attention_norm(x), mask, attention_key, packing)
        x = x + dropout(update, self.dropout, keys[0])
        hidden = jax.nn.gelu(self.mlp_in(self.mlp_norm(x)), approximate=False)
        update = self.mlp_out(dropout(hidden, self.dropout, keys[1]))
        return x + dropout(update, self.dropout, keys[2])

    def _is_fused(self, x: Array) -> bool:
        widths = x.shape[-1], self.attention.output.in_features, self.mlp_in.out_features
        return kernel_choice.preferred_for_rows(x.shape[:-1], widths, x.dtype, this_machine())

    def _fused(
        self,
        x: Array,
        mask: Array,
        attention_key: Array | None,
        keys: list,
        packing: Packing | None,
    ) -> Array:
        """`__call__` by the kernels of `models.fused`."""
        from models import fused  # Pallas is slow to import

        def weights(linear: Linear) -> fused.Dense:
            return fused.Dense(
                linear.kernel[...], None if linear.bias is None else linear.bias[...]
            )

        attention, norm, mlp_norm = self.attention, self.attention_norm, self.mlp_norm
        x, projected = fused.project(
            x,
            fused.Norm(norm.scale[...], norm.bias[...]),
            [weights(linear) for linear in attention.projections],
            epsilon=EPSILON,
        )
        rest = fused.FinishWeights(
            weights(attention.output),
            fused.Norm(mlp_norm.scale[...], mlp_norm.bias[...]),
            weights(self.mlp_in),
            weights(self.mlp_out),
        )
        drops = attention_key is not None and self.dropout > 0
        return fused.finish(
            x,
            attention.attend(projected, mask, attention_key, packing),
            rest,
            epsilon=EPSILON,
            dropout=self.dropout,
            seeds=tuple(row_seeds(key, x.shape[:-1]) for key in keys) if drops else None,
        )
