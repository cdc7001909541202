"""Hugging Face's Nyströmformer and Reformer attentions for `benchmarks.torch_models`.

These are their modules, with query, key and value projections, inside the pre-norm block that all
attentions here share; so without Reformer's reversible layers, which would repeat the forward pass.
They have as many parameters as ours, except that Reformer's value projection has no bias (64 fewer
parameters per layer). Nyström's pseudo-inverse starts from one maximum over batch and heads, and
its landmarks average over padding too. Reformer draws rotations in evaluation as well.
"""

from typing import Any

import transformers
from torch import Tensor, nn
from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

from benchmarks.torch_attentions import attention_bias

transformers.logging.set_verbosity_error()


class Nystrom(NystromformerSelfAttention):
    """Hugging Face's Nyströmformer self-attention, projections included."""

    def __init__(self, model: dict[str, Any], length: int, shared: nn.Module | None):
        del shared
        options = model["attention"]
        config = transformers.NystromformerConfig(
            hidden_size=model["dim"],
            num_attention_heads=model["num_heads"],
            num_landmarks=options["num_landmarks"],
            segment_means_seq_len=length,
            conv_kernel_size=options["conv_kernel"],
        )
        super().__init__(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, attention_bias(mask))[0]


class Reformer(LSHSelfAttention):
    """Hugging Face's LSH self-attention, projections included; each call draws new rotations."""

    def __init__(self, model: dict[str, Any], length: int, shared: nn.Module | None):
        del shared
        options = model["attention"]
        config = transformers.ReformerConfig(
            hidden_size=model["dim"],
            attention_head_size=model["head_dim"],
            num_attention_heads=model["num_heads"],
            num_hashes=options["num_hashes"],
            lsh_attn_chunk_length=options["chunk_length"],
            lsh_attention_probs_dropout_prob=0.0,
            max_position_embeddings=length,
            num_buckets=None,
            is_decoder=False,
        )
        super().__init__(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, mask).hidden_states
