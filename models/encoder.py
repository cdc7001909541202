"""The one encoder: token and position embeddings, pre-norm blocks, a final normalisation.

It is the same for every attention and every task. Its sizes are set in `configs`; the defaults are
those of the model behind Table 3 of the Nyströmformer paper (arXiv 2102.03902). So is the
initialisation: kernels and biases of Linear uniform within ±1/sqrt(fan in), PyTorch's default, and
embeddings N(0, 0.02^2).

    x = dropout(token[ids] + position)
    x = block(x)                            for each of `models.block`
    out = LN(x) * mask

On one GPU, in 16 bits, `models.embedding_kernel` computes the gradient of the embeddings for sizes
at which `models.kernel_choice` prefers it.

Everything is a pure function of the inputs and of `key`. In training this is a PRNG key, or one per
example (`models.keys`); `key=None` means evaluation: deterministic, no dropout.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from models import attention as attentions
from models import kernel_choice
from models.attention.contract import Attention
from models.attention.packing import make_packing, pack, spread
from models.attention.padding import zeroed
from models.block import Block, LayerNorm
from models.checks import check_choice, check_fraction, check_not_negative, check_positive
from models.dropout import dropout, row_seeds
from models.embedding import add_positions, lookup
from models.keys import split
from models.machine import this_machine

POSITIONS = ("learned", "sinusoidal", "none")

_EMBEDDING_STD = 0.02


def sinusoidal_positions(length: int, dim: int) -> Float[Array, "length dim"]:
    """Interleaved sin and cos, wavelengths 2π to nearly 10,000 · 2π (1706.03762, section 3.5)."""
    rates = jnp.exp(-jnp.log(10_000.0) * jnp.arange(0, dim, 2, jnp.float32) / dim)
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * rates[None, :]
    waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return waves.reshape(length, -1)[:, :dim]


class Encoder(nnx.Module):
    """Embeddings, `num_layers` blocks and a final LayerNorm; masked positions come out as 0.

    Args:
        vocab_size: Number of token ids, padding included.
        length: Longest sequence, in positions.
        num_layers: Number of blocks.
        dim: Width of the residual stream.
        mlp_dim: Width of the MLPs' hidden layer.
        num_heads: Number of attention heads.
        head_dim: Width of a head.
        dropout: Dropout rate after the embeddings, attentions and both MLP layers.
        positions: `learned`, `sinusoidal` or `none`.
        remat: Whether the backward pass recomputes each block.
        attention: `name` of an attention and its options.
        dtype: Dtype of activations; parameters are float32.
        rngs: Streams `params` and `attention`.

    Raises:
        ValueError: An unknown kind of positions, attention or option, a size that is below 1
            or does not fit, or a dropout rate outside [0, 1).
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
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        check_choice("positions", positions, POSITIONS)
        check_not_negative(num_layers=num_layers)
        check_positive(vocab_size=vocab_size, length=length, dim=dim, mlp_dim=mlp_dim)
        check_positive(num_heads=num_heads, head_dim=head_dim)
        check_fraction(dropout=dropout)
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
        self.norm = LayerNorm(dim, rngs=rngs)
        self.length, self.dim = length, dim
        self.dropout, self.remat, self.dtype = dropout, remat, dtype
        self.sinusoidal = positions == "sinusoidal"

    def __call__(
        self,
        ids: Int[Array, "batch length"],
        mask: Bool[Array, "batch length"],
        key: Array | None = None,
        packed_length: int | None = None,
    ) -> Float[Array, "batch length dim"]:
        """Encode a batch.

        Args:
            ids: Token ids.
            mask: Which tokens are real.
            key: PRNG key or keys, see above.
            packed_length: Number of positions that blocks compute, enough for the real tokens of
                every sequence (`models.attention.packing`): with fewer, which is not checked,
                results are wrong. Packing changes rounding and, in training, the dropout masks.
                None: blocks compute all positions.

        Raises:
            ValueError: A sequence longer than `length`.
        """
        if ids.shape[-1] > self.length:
            raise ValueError(
                f"{ids.shape[-1]} positions, but the encoder is made for {self.length}"
            )
        embedding_key, *block_keys = split(key, 1 + len(self.blocks))
        x, block_mask = self._embed(ids, embedding_key), mask
        packing = None if packed_length is None else make_packing(mask, packed_length)
        if packing is not None:
            x, block_mask = pack(x, packing), packing.packed_mask
        for block, block_key in zip(self.blocks, block_keys, strict=True):
            # A new function in every call: JAX caches traces by function, and that of the block
            # itself would keep the parameters it was traced with.
            run = jax.checkpoint(functools.partial(block)) if self.remat else block
            x = run(x, block_mask, block_key, packing)
        x = self.norm(x)
        if packing is not None:
            return spread(x, packing)
        return zeroed(x, mask)

    @property
    def attentions(self) -> list[Attention]:
        """The attention of each block."""
        return [block.attention.attention for block in self.blocks]

    def _embed(self, ids: Array, key: Array | None) -> Array:
        """Embed tokens and positions, with dropout."""
        length, token = ids.shape[-1], self.token[...]
        position = None if self.position is None else self.position[...][:length]
        if self.sinusoidal:
            position = sinusoidal_positions(length, self.dim)
        machine = this_machine()
        if kernel_choice.preferred_for_embedding(length, *token.shape, self.dtype, machine):
            return self._embed_by_kernel(token, position, ids, key)
        # In float32, since gradients of embeddings are sums over the batch.
        x = lookup(token, ids, self.dtype)
        x = x if position is None else add_positions(x, position)
        return dropout(x.astype(self.dtype), self.dropout, key)

    def _embed_by_kernel(
        self, token: Array, position: Array | None, ids: Array, key: Array | None
    ) -> Array:
        from models.embedding_kernel import embed  # Pallas is slow to import

        drops = key is not None and self.dropout > 0
        seeds = row_seeds(key, ids.shape) if drops else None
        return embed(token, position, ids, dropout=self.dropout, seeds=seeds, dtype=self.dtype)
