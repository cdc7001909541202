"""Exact softmax attention (Vaswani et al. 2017, arXiv 1706.03762), in four implementations.

    out_i = sum_j softmax_j(q_i . k_j / sqrt(head_dim)) v_j          over the real positions j

Time O(length^2 head_dim). Memory O(length^2) for `xla` (`models.attention.materialised`), which
stores all scores, unless XLA fuses the forward pass (JAX 0.12 on a CPU); O(length) for `chunked`
(`models.attention.chunked`), `cudnn` (`models.attention.cudnn`) and `flash`
(`models.attention.flash`). The last two are GPU kernels.

Attention weights are dropped with probability 0.1 in training, as in the baseline behind Table 3
of arXiv 2102.03902 (mlpen/Nystromformer, LRA/code).

Difference from that code: masked keys have weight 0 rather than a score of -1e6, so a sequence
without real tokens gives 0 and does not attend to its padding.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from models import kernel_choice
from models.attention import cudnn
from models.attention.chunked import chunked_attention
from models.attention.contract import Attention, Heads, Mask, check_inputs, masked_softmax
from models.attention.materialised import materialised_attention
from models.attention.padding import zeroed
from models.checks import check_choice, check_fraction
from models.dropout import keep_probability, keep_weights, weight_seeds
from models.dtypes import accumulation_dtype, common_dtype
from models.machine import Machine, heads_on_a_device, this_machine

IMPLEMENTATIONS = ("auto", "xla", "chunked", "cudnn", "flash")

# On accelerators `auto` takes `xla` if this many times the scores fit into the device's memory. Two
# layers with dropout keep them 4 times for the backward pass (3 with 16-bit inputs) and use 1 or 2
# more; the rest is for parameters, data and other programs. Not timed.
_SCORES_IN_MEMORY = 50
_UNKNOWN_MEMORY = 2**34  # bytes assumed where the device does not report its memory


def standard_attention(
    q: Heads, k: Heads, v: Heads, mask: Mask, *, dropout: float = 0.0, key: jax.Array | None = None
) -> Heads:
    """Compute softmax attention in its plain form, the reference for the implementations.

    Args:
        q, k, v, mask: See `models.attention.contract`.
        dropout: Probability of dropping an attention weight; the others are scaled up.
        key: PRNG key of the dropout mask; None: no dropout.

    Raises:
        ValueError: A `dropout` not in [0, 1), or inputs that violate the contract.
    """
    check_inputs(q, k, v, mask)
    check_fraction(dropout=dropout)
    dtype = accumulation_dtype(q.dtype)
    k, v = zeroed(k, mask), zeroed(v, mask)
    scores = jnp.einsum("blhd,bmhd->bhlm", q, k, preferred_element_type=dtype)
    weights = masked_softmax(scores / math.sqrt(q.shape[-1]), mask[:, None, None, :])
    if key is not None and dropout > 0:
        seeds = weight_seeds(key, k.shape[:3])
        keep = keep_weights(seeds, jnp.arange(q.shape[1], dtype=jnp.int32), dropout)
        weights = jnp.where(keep.swapaxes(2, 3), weights / keep_probability(dropout), 0)
    weights = weights.astype(v.dtype)
    out = jnp.einsum("bhlm,bmhd->blhd", weights, v, preferred_element_type=dtype)
    return out.astype(q.dtype)


def choose_implementation(
    shape: tuple[int, int, int, int], dtype: DTypeLike, *, dropout: bool, machine: Machine
) -> str:
    """Return the implementation that `auto` stands for.

    On a CPU, `chunked`: forward and backward on one core, at lengths 64 to 2,048 and batches of 1
    to 32, it took 0.7 to 1.2 times as long as `xla` (with dropout 0.6 to 1.3 times, the most for
    32 inputs of 256), and no more memory except, with dropout, a third more for one input of 256
    (`python -m benchmarks.standard_memory`). Elsewhere, `cudnn` without dropout and `flash` with
    dropout, if the kernel takes such inputs (`models.kernel_choice`): on an H100, in bfloat16,
    training steps by `flash` took 0.25 (Text, Retrieval) to 0.32 (Image) of the time of `xla` and
    `chunked`, but its evaluations 0.96 to 1.7 times that of `cudnn`
    (results/training/TRAINING.md). Otherwise `xla` while the scores take at most a fiftieth of the
    device's memory, and `chunked` beyond.

    Args:
        shape: Shape of q: batch, length, heads, head_dim. Seeds mapped by `vmap`, and devices that
            share a batch, count within `machine.copies_on_a_device`.
        dtype: Dtype of q.
        dropout: Whether attention weights are dropped in this call.
        machine: Machine that computes.
    """
    if machine.backend == "cpu":
        return "chunked"
    batch, length, heads, head_dim = shape
    if not dropout and cudnn.supports(dtype, head_dim, machine):
        return "cudnn"
    if dropout and kernel_choice.preferred_for_heads(dtype, head_dim, machine):
        return "flash"
    itemsize = accumulation_dtype(jnp.dtype(dtype)).itemsize
    score_bytes = heads_on_a_device(batch * heads) * length**2 * itemsize
    memory = machine.memory or _UNKNOWN_MEMORY
    return "xla" if score_bytes * _SCORES_IN_MEMORY <= memory else "chunked"


class StandardAttention(Attention):
    """Exact attention with dropout of attention weights in training; no parameters."""

    reads_positions = False
    why_not_causal = (
        "its implementations mask keys that are padding, the same ones for every query, and the "
        "benchmark's encoders read whole sequences"
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
        dropout: float | int = 0.1,
        implementation: str = "auto",
    ):
        """Check the options.

        Args:
            length, heads, head_dim, layer, shared, rngs: See `models.attention.make`.
            dropout: Probability of dropping an attention weight in training.
            implementation: `xla`, `chunked`, `cudnn`, `flash`, or `auto`, see
                `choose_implementation`.

        Raises:
            ValueError: An unknown implementation, or a dropout not in [0, 1).
        """
        check_fraction(dropout=dropout)
        check_choice("implementation", implementation, IMPLEMENTATIONS)
        self.dropout = float(dropout)
        self.implementation = implementation

    def __call__(
        self, q: Heads, k: Heads, v: Heads, mask: Mask, *, key: jax.Array | None = None
    ) -> Heads:
        """Attend, with dropout of attention weights if a `key` is given.

        Raises:
            ValueError: Inputs that violate the contract; `cudnn` with dropout; `cudnn` or `flash`
                where their kernels do not run.
        """
        check_inputs(q, k, v, mask)
        drops = key is not None and self.dropout > 0
        implementation = self.implementation
        if implementation == "auto":
            dtype = common_dtype(q.dtype, k.dtype, v.dtype)  # kernels take no mixed dtypes
            implementation = choose_implementation(
                q.shape, dtype, dropout=drops, machine=this_machine()
            )
        if implementation == "cudnn":
            if drops:
                raise ValueError(
                    "implementation='cudnn' cannot drop attention weights in training: set "
                    "attention dropout to 0 or choose 'auto', 'flash', 'chunked' or 'xla'"
                )
            return cudnn.cudnn_attention(q, k, v, mask)
        if implementation == "flash":
            # Pallas is slow to import.
            from models.attention.flash import flash_attention

            return flash_attention(q, k, v, mask, query_mask=mask, dropout=self.dropout, key=key)
        if implementation == "xla":
            return materialised_attention(q, k, v, mask, dropout=self.dropout, key=key)
        return chunked_attention(q, k, v, mask, query_mask=mask, dropout=self.dropout, key=key)
