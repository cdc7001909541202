"""The one encoder: token and position embeddings, pre-norm blocks, a final normalisation.

It is the same for every attention and every task. Its sizes are in `configs`, by default those of
the model behind Table 3 of the Nyströmformer paper (arXiv 2102.03902). Initialisation is that
model's: kernels and biases of Linear uniform within ±1/sqrt(fan in), PyTorch's default, and
embeddings N(0, 0.02).

    x = dropout(token[ids] + position)
    x = x + dropout(output(attention(LN x)))        for each block
    x = x + dropout(W2 dropout(gelu(W1 LN x)))
    out = LN(x) * mask

On one GPU, in 16 bits, all of a block but attention is computed by the kernels of `models.fused`,
and the gradient of the embeddings by that of `models.embedding_kernel`, if sizes are such that
`models.attention.kernels` prefers them.

Everything is a pure function of the inputs and of `key`, in training a PRNG key or one for each
example (`models.keys`); `key=None` is evaluation: deterministic, no dropout.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from models import attention as attentions
from models.attention import kernels
from models.attention.contract import check_choice
from models.attention.machine import this_machine
from models.dense import Linear
from models.dropout import dropout, row_seeds
from models.embedding import add_positions, lookup
from models.keys import split

POSITIONS = ("learned", "sinusoidal", "none")

_EPSILON = 1e-5  # of LayerNorm, PyTorch's default
_EMBEDDING_STD = 0.02


def sinusoidal_positions(length: int, dim: int) -> Float[Array, "length dim"]:
    """sin and cos of wavelengths 2π to 10,000 · 2π, interleaved (arXiv 1706.03762, section 3.5)."""
    rates = jnp.exp(-jnp.log(10_000.0) * jnp.arange(0, dim, 2, jnp.float32) / dim)
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * rates[None, :]
    waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return waves.reshape(length, -1)[:, :dim]


class LayerNorm(nnx.LayerNorm):
    """`nnx.LayerNorm` in at least float32, the gradients of its parameters too.

    Its variance is E[x^2] - E[x]^2, with an error that grows as (mean / std)^2: 4e-5 of the output
    at 10, 4e-3 at 100, in float32. In this encoder, trained on ListOps, that ratio is below 1.
    """

    def __call__(self, x: Float[Array, "*shape dim"]) -> Float[Array, "*shape dim"]:
        # Flax's sums are in another format than x, also where the caller forbids it.
        with jax.numpy_dtype_promotion("standard"):
            return super().__call__(x).astype(x.dtype)


class MultiHeadAttention(nnx.Module):
    """Projects to queries, keys and values, attends, and projects back.

    An attention that ties keys to queries (`shares_qk`) gets one projection for both, without a
    bias, like the reference Reformer. (The reference's value projection has no bias either; ours
    does: attention weights sum to 1, so it merely adds a constant to the output's bias.)
    """

    def __init__(
        self,
        attention: nnx.Module,
        *,
        dim: int,
        heads: int,
        head_dim: int,
        dtype: Any,
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
        """Of queries, keys and values; tied ones are one."""
        return tuple(x for x in (self.query, self.key, self.value) if x is not None)

    def __call__(
        self,
        x: Float[Array, "batch length dim"],
        mask: Bool[Array, "batch length"],
        key: Array | None = None,
    ) -> Float[Array, "batch length dim"]:
        return self.output(self.attend([p(x) for p in self.projections], mask, key))

    def attend(
        self,
        projected: Sequence[Float[Array, "batch length width"]],
        mask: Bool[Array, "batch length"],
        key: Array | None,
    ) -> Float[Array, "batch length width"]:
        """Attention between the results of `projections`; heads side by side."""
        heads = [y.reshape(*y.shape[:-1], self.heads, -1) for y in projected]
        out = self.attention(heads[0], heads[-2], heads[-1], mask, key=key)
        return out.reshape(*out.shape[:2], -1)


class Block(nnx.Module):
    """One pre-norm layer: attention, then a two-layer perceptron with the exact GELU."""

    def __init__(
        self,
        attention: nnx.Module,
        *,
        dim: int,
        mlp_dim: int,
        heads: int,
        head_dim: int,
        dropout: float,
        dtype: Any,
        rngs: nnx.Rngs,
    ):
        self.attention_norm = LayerNorm(dim, epsilon=_EPSILON, rngs=rngs)
        self.attention = MultiHeadAttention(
            attention, dim=dim, heads=heads, head_dim=head_dim, dtype=dtype, rngs=rngs
        )
        self.mlp_norm = LayerNorm(dim, epsilon=_EPSILON, rngs=rngs)
        self.mlp_in = Linear(dim, mlp_dim, dtype=dtype, rngs=rngs)
        self.mlp_out = Linear(mlp_dim, dim, dtype=dtype, rngs=rngs)
        self.dropout = dropout

    def __call__(
        self,
        x: Float[Array, "batch length dim"],
        mask: Bool[Array, "batch length"],
        key: Array | None = None,
    ) -> Float[Array, "batch length dim"]:
        attention_key, *keys = split(key, 4)
        if self._is_fused(x):
            return self._fused(x, mask, attention_key, keys)
        update = self.attention(self.attention_norm(x), mask, attention_key)
        x = x + dropout(update, self.dropout, keys[0])
        hidden = jax.nn.gelu(self.mlp_in(self.mlp_norm(x)), approximate=False)
        update = self.mlp_out(dropout(hidden, self.dropout, keys[1]))
        return x + dropout(update, self.dropout, keys[2])

    def _is_fused(self, x: Array) -> bool:
        widths = x.shape[-1], self.attention.output.in_features, self.mlp_in.out_features
        return kernels.preferred_for_rows(x.shape[:-1], widths, x.dtype, this_machine())

    def _fused(self, x: Array, mask: Array, attention_key: Array | None, keys: list) -> Array:
        """As `__call__`, by `models.fused`."""
        from models import fused  # here, since Pallas takes a fifth of a second to import

        def weights(linear: Linear) -> fused.Dense:
            return fused.Dense(
                linear.kernel[...], None if linear.bias is None else linear.bias[...]
            )

        attention, norm, mlp_norm = self.attention, self.attention_norm, self.mlp_norm
        x, projected = fused.project(
            x,
            fused.Norm(norm.scale[...], norm.bias[...]),
            [weights(linear) for linear in attention.projections],
            epsilon=_EPSILON,
        )
        rest = fused.Rest(
            weights(attention.output),
            fused.Norm(mlp_norm.scale[...], mlp_norm.bias[...]),
            weights(self.mlp_in),
            weights(self.mlp_out),
        )
        drops = attention_key is not None and self.dropout > 0
        return fused.finish(
            x,
            attention.attend(projected, mask, attention_key),
            rest,
            epsilon=_EPSILON,
            dropout=self.dropout,
            seeds=tuple(row_seeds(key, x.shape[:-1]) for key in keys) if drops else None,
        )


class Encoder(nnx.Module):
    """Embeddings, `num_layers` blocks and a final LayerNorm; masked positions come out as 0.

    Args:
        vocab_size: number of token ids, padding included.
        length: the longest sequence, in positions.
        num_layers: number of blocks.
        dim: width of the residual stream.
        mlp_dim: width of the perceptrons' hidden layer.
        num_heads: attention heads.
        head_dim: width of a head.
        dropout: rate after the embeddings, attentions and both perceptron layers.
        positions: `learned`, `sinusoidal` or `none`.
        remat: recompute each block in the backward pass.
        attention: `name` of an attention and its options.
        dtype: of activations; parameters are float32.
        rngs: the streams `params` and `attention`.

    Raises:
        ValueError: an unknown kind of positions, attention or option, or a size that does not fit.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        length: int,
        num_layers: int,
        dim: int,
        mlp_dim: int,
        num_heads: int,
        head_dim: int,
        dropout: float,
        positions: str,
        remat: bool,
        attention: Mapping[str, Any],
        dtype: Any,
        rngs: nnx.Rngs,
    ):
        check_choice("positions", positions, POSITIONS)
        normal = nnx.initializers.normal(_EMBEDDING_STD)
        self.token = nnx.Param(normal(rngs.params(), (vocab_size, dim), jnp.float32))
        learned = positions == "learned"
        shape = length, dim
        self.position = nnx.Param(normal(rngs.params(), shape, jnp.float32)) if learned else None
        blocks, shared = [], None
        for layer in range(num_layers):
            module = attentions.make(
                **attention,
                length=length,
                heads=num_heads,
                head_dim=head_dim,
                layer=layer,
                shared=shared,
                rngs=rngs,
            )
            shared = module if shared is None else shared
            block = Block(
                module,
                dim=dim,
                mlp_dim=mlp_dim,
                heads=num_heads,
                head_dim=head_dim,
                dropout=dropout,
                dtype=dtype,
                rngs=rngs,
            )
            blocks.append(block)
        self.blocks = nnx.List(blocks)
        self.norm = LayerNorm(dim, epsilon=_EPSILON, rngs=rngs)
        self.dim, self.dropout, self.remat, self.dtype = dim, dropout, remat, dtype
        self.sinusoidal = positions == "sinusoidal"

    def __call__(
        self,
        ids: Int[Array, "batch length"],
        mask: Bool[Array, "batch length"],
        key: Array | None = None,
    ) -> Float[Array, "batch length dim"]:
        embedding_key, *block_keys = split(key, 1 + len(self.blocks))
        x = self._embed(ids, embedding_key)
        for block, block_key in zip(self.blocks, block_keys, strict=True):
            if self.remat:
                x = jax.checkpoint(lambda x, block=block, k=block_key: block(x, mask, k))(x)
            else:
                x = block(x, mask, block_key)
        return jnp.where(mask[..., None], self.norm(x), 0)

    def _embed(self, ids: Array, key: Array | None) -> Array:
        """Tokens and positions, with dropout."""
        length, token = ids.shape[-1], self.token[...]
        position = None if self.position is None else self.position[...][:length]
        if self.sinusoidal:
            position = sinusoidal_positions(length, self.dim)
        machine = this_machine()
        if kernels.preferred_for_embedding(length, *token.shape, self.dtype, machine):
            return self._embed_by_kernel(token, position, ids, key)
        # In float32, as gradients of embeddings are sums over the batch.
        x = lookup(token, ids, self.dtype)
        x = x if position is None else add_positions(x, position)
        return dropout(x.astype(self.dtype), self.dropout, key)

    def _embed_by_kernel(
        self, token: Array, position: Array | None, ids: Array, key: Array | None
    ) -> Array:
        from models.embedding_kernel import embed  # here for the same reason as `models.fused`

        drops = key is not None and self.dropout > 0
        seeds = row_seeds(key, ids.shape) if drops else None
        return embed(token, position, ids, dropout=self.dropout, seeds=seeds, dtype=self.dtype)
