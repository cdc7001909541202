"""What all attentions share: their contract, the masked softmax, and the check of inputs.

An attention is a subclass of `Attention`, made by `models.attention.make` and called as

    out = attention(q, k, v, mask, key=None)

    q k v out   `Heads`: floats [batch, length, heads, head_dim], projected by the encoder, unscaled
    mask        `Mask`: bools [batch, length], True = token; not necessarily a prefix
    key         in training a PRNG key, or keys [batch], one per example; None in evaluation, which
                is deterministic

- The contents of masked positions, which must be finite and far from overflow, never affect outputs
  and gradients at real positions. Outputs at masked positions are arbitrary but finite; a loss must
  not depend on them: some methods ignore their gradients.
- q, k and v have the same shape: cross-attention is outside this contract. Other shapes, dtypes
  that are not real floating-point ones, and masks that are not bool raise ValueError
  (`check_inputs`), in modules and in the pure functions named after a method. The implementations
  that these choose from, such as `chunked_attention`, expect inputs that were checked.
- q, k and v may mix float32 and 16-bit floats; float64 is for all of them or none.
- Gradients are those of reverse mode (`jax.grad`, `jax.vjp`); forward mode is not supported.
- Batch and length are at least 1; the result of an empty call is unspecified.
- A sequence shorter than the length the module was made for gives the same outputs at its
  positions as when padded to that length, in training too.
- A sequence without any real token gives 0, never NaN.
- The output has the dtype of `q`. Softmaxes, inverses and random features are computed in
  `accumulation_dtype(q.dtype)` (`models.dtypes`): at least float32, for float64 inputs float64.
  Products of float32 arrays have the precision that JAX is set to: by default GPUs and TPUs round
  their operands to 10 or 7 bits. The training loop sets `jax.default_matmul_precision("float32")`.
- No attention here is causal: `make(..., causal=True)` raises and says why (`why_not_causal`).
- Trained arrays are `nnx.Param`; arrays drawn once and never trained are `Untrained`.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from models.attention.packing import Packing, pack, spread

Heads = Float[Array, "batch length heads head_dim"]
Mask = Bool[Array, "batch length"]


class Untrained(nnx.Variable):
    """An array drawn at initialisation, saved with the model and never trained."""


def untrained_key(rngs: nnx.Rngs) -> Array:
    """Next key for an `Untrained` array: of `attention`, else of the default, else of `params`."""
    given = "attention" in rngs or "default" in rngs  # Flax falls back to its default
    return rngs.attention() if given else rngs.params()


class Attention(nnx.Module):
    """Base class of attentions: what the encoder and the training loop ask of them.

    Attributes:
        shares_qk: Whether queries are also the keys. The encoder then projects no keys and passes
            `k = q`.
        reads_positions: Whether outputs depend on where real tokens are, not only on their order.
            If not, the encoder may leave out padding between them (`models.attention.packing`).
        why_not_causal: Ends the sentence "... attention cannot be causal: ".
    """

    shares_qk = False
    reads_positions = True
    why_not_causal = "it is made for encoders, which read whole sequences"

    def __call__(
        self, q: Heads, k: Heads, v: Heads, mask: Mask, *, key: Array | None = None
    ) -> Heads:
        """Attend; see the contract in `models.attention.contract`."""
        raise NotImplementedError(type(self).__name__)

    def attend_packed(
        self, q: Heads, k: Heads, v: Heads, packing: Packing, *, key: Array | None = None
    ) -> Heads:
        """Attend between packed sequences (`models.attention.packing`).

        By default those that read no positions attend between them as they are; for the others,
        sequences are unpacked and the result is packed again.
        """
        if not self.reads_positions:
            return self(q, k, v, packing.packed_mask, key=key)
        q, k, v = (spread(x, packing) for x in (q, k, v))
        return pack(self(q, k, v, packing.mask, key=key), packing)

    def redraw(self, key: Array) -> None:
        """Draw `Untrained` arrays anew, if the method does that during training."""


def masked_softmax(
    scores: Float[Array, "*shape keys"], mask: Bool[Array, "*#shape keys"]
) -> Float[Array, "*shape keys"]:
    """Softmax over the last axis, with weight 0 where `mask` is False, even if all of a row is.

    Gradients and all intermediate values are always finite. (For a row without any key,
    `jax.nn.softmax(where=...)` has an intermediate NaN. `--debug_nans` would blame it for another
    NaN of its step, which it repeats operation by operation.)
    """
    lowest = jnp.finfo(scores.dtype).min
    scores = jnp.where(mask, scores, lowest)
    # Stopped before the maximum: otherwise the program would compute its gradient for nothing.
    peak = jnp.max(jax.lax.stop_gradient(scores), axis=-1, keepdims=True)
    weights = jnp.where(mask, jnp.exp(scores - peak), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def check_length(length: int, longest: int) -> None:
    """Raise ValueError for sequences longer than a module was made for."""
    if length > longest:
        raise ValueError(f"{length} positions, but the attention is made for {longest}")


def check_inputs(
    q: object,
    k: object,
    v: object,
    mask: object,
    *,
    heads: int | None = None,
    head_dim: int | None = None,
) -> None:
    """Raise ValueError unless shapes and dtypes satisfy the contract.

    Without this check, broadcasting could silently combine arrays that do not belong together.

    Args:
        q, k, v, mask: Arguments of the attention's call.
        heads, head_dim: Sizes that the module was made for; None accepts any.
    """
    shapes = [getattr(x, "shape", None) for x in (q, k, v)]
    if len(set(shapes)) > 1 or shapes[0] is None or len(shapes[0]) != 4:
        raise ValueError(
            "q, k and v must be of one shape [batch, length, heads, head_dim], not "
            + ", ".join(map(str, shapes))
        )
    for x in (q, k, v):
        if not jnp.issubdtype(x.dtype, jnp.floating):  # outputs would be truncated to it
            raise ValueError(f"q, k and v must be floating-point arrays, not {x.dtype}")
    for size, expected, unit in (
        (shapes[0][2], heads, "heads"),
        (shapes[0][3], head_dim, "numbers per head"),
    ):
        if expected not in (size, None):
            raise ValueError(f"{size} {unit}, but the attention is made for {expected}")
    if not hasattr(mask, "dtype"):
        raise ValueError(f"mask must be an array, True = token, not {mask!r}")
    if mask.shape != shapes[0][:2] or mask.dtype != jnp.bool_:
        raise ValueError(
            f"mask must be bool {shapes[0][:2]}, True = token, not {mask.dtype} {mask.shape}"
        )
