"""Attention modules of PyTorch and its libraries, as alternatives to ours, for `benchmarks.worker`.

Every module maps [batch, length, dim] to the same shape through projections of the same width as
ours; libraries that leave the output projection to the caller get one. Options are those of our
method. Dropout is 0. Peers get no mask, which is the fastest case for each; our modules do get one.

Differences from ours, beyond the order of operations:
- transformers Nystromformer: the pseudo-inverse starts from one maximum over batch and heads;
  the length must be a multiple of the number of landmarks; always 6 iterations.
- nystrom-attention: the same start; no biases in the query, key and value projections.
- linformer: one E and one F [length, proj_dim] for all heads, or one for both where ours has
  key-value or layerwise sharing; ours has by default one projection per head for both; no biases
  in the query, key and value projections.
- performer-pytorch: no biases in the query, key and value projections.
- transformers Reformer: no biases; draws rotations in every call, ours only in training.
- transformers Longformer: has projections for global tokens, which are not used; the length must
  be a multiple of twice the window.

bfloat16 means autocast with float32 parameters, as in ours.
"""

import contextlib
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.cases import Case, Contender


class Program:
    """An attention module with its input."""

    def __init__(self, module: nn.Module, case: Case):
        dtype = getattr(torch, case.dtype)
        torch.manual_seed(0)
        self._module = module
        self._training = case.mode == "forward_backward"
        self._module.train(self._training)
        shape = (case.batch, case.length, case.dim)
        self._x = torch.randn(shape, dtype=dtype, requires_grad=self._training)
        self._cotangent = torch.randn_like(self._x) if self._training else None
        self._autocast = contextlib.nullcontext()
        if dtype != torch.float32:
            self._autocast = torch.autocast(self._x.device.type, dtype)

    @property
    def analysis(self) -> dict[str, float]:
        """Analysis of the compiled program: empty, as nothing is known before running."""
        return {}

    @property
    def argument_bytes(self) -> int:
        """Bytes of parameters and inputs."""
        tensors = [*self._module.parameters(), *self._module.buffers(), self._x]
        tensors += [] if self._cotangent is None else [self._cotangent]
        return sum(x.numel() * x.element_size() for x in tensors)

    def run(self) -> None:
        """Call the module and wait for it; gradients are freed first, so each call allocates."""
        self.forget()
        if self._training:
            with self._autocast:
                out = self._module(self._x)
            out.backward(self._cotangent.to(out.dtype))
        else:
            with torch.inference_mode(), self._autocast:
                self._module(self._x)
        if self._x.is_cuda:
            torch.cuda.synchronize()

    def forget(self) -> None:
        """Free the gradients of the last call."""
        self._x.grad = None
        self._module.zero_grad(set_to_none=True)

    def device_peak(self, since: int | None = None) -> int | None:
        """Without `since`, reset the peak and return 0; with it, return peak bytes since then."""
        if not self._x.is_cuda:
            return None
        if since is None:
            torch.cuda.reset_peak_memory_stats()
            return 0
        return torch.cuda.max_memory_allocated()


def configure(threads: int | None, matmul_precision: str, platform: str) -> None:
    """Configure torch before anything is computed.

    Raises:
        ValueError: If torch does not support JAX's platform.
    """
    if platform != "cpu" and not (platform == "gpu" and torch.cuda.is_available()):
        raise ValueError(f"this build of torch ({torch.__version__}) has no {platform} here")
    torch.set_default_device("cuda" if platform == "gpu" else "cpu")
    if threads:
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(threads)
    names = {"float32": "highest", "tensorfloat32": "high", "bfloat16": "medium"}
    torch.set_float32_matmul_precision(names[matmul_precision])


def platform() -> str:
    """Return `cpu` or `gpu`."""
    return "gpu" if torch.get_default_device().type == "cuda" else "cpu"


def release() -> None:
    """Return cached memory to the device for other processes."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def check(contender: Contender, case: Case) -> None:
    """Raise ValueError if the peer does not support a case."""
    options, peer, length = contender.options, contender.peer, case.length
    if case.benchmark == "model":
        raise ValueError("peers are attention modules; they have no model")
    multiple = 1
    if peer == "transformers":
        multiple = {
            "nystrom": options.get("num_landmarks"),
            "longformer": 2 * options.get("window", 1),
            "reformer": options.get("chunk_length"),
        }[contender.method]
    if length % multiple:
        raise ValueError(f"{contender.label} takes multiples of {multiple} positions")


def build(contender: Contender, case: Case) -> Program:
    """Return the module of a peer, ready to run."""
    make = _MODULES[contender.method, contender.peer]
    # performer-pytorch orthogonalises on the CPU and expects all else to be there as well.
    with torch.device("cpu"):
        module = make(contender.options, case.length, case.dim, case.heads)
    return Program(module.to(torch.get_default_device()), case)


class Softmax(nn.Module):
    """Exact attention: torch's fused kernel, or with all scores in memory."""

    def __init__(self, dim: int, heads: int, *, fused: bool):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(dim, dim) for _ in range(4))
        self.heads, self.fused = heads, fused

    def forward(self, x: Tensor) -> Tensor:
        """Compute self-attention."""
        q, k, v = (
            projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        if self.fused:
            out = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q / math.sqrt(q.shape[-1]) @ k.transpose(-1, -2)
            out = torch.softmax(scores, -1) @ v
        return self.output(out.transpose(1, 2).flatten(2))


class WithOutput(nn.Module):
    """Self-attention of a transformers model, with the output projection that it lacks."""

    def __init__(self, attention: nn.Module, dim: int, *, bias: bool = True):
        super().__init__()
        self.attention, self.output = attention, nn.Linear(dim, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Compute self-attention."""
        return self.output(self.attention(x)[0])


def _nystromformer(options: dict, length: int, dim: int, heads: int) -> nn.Module:
    from transformers import NystromformerConfig
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    if options["pinv_iterations"] != 6:
        raise ValueError("transformers Nystromformer has 6 pinv_iterations")
    config = NystromformerConfig(
        hidden_size=dim,
        num_attention_heads=heads,
        num_landmarks=options["num_landmarks"],
        segment_means_seq_len=length,
        conv_kernel_size=options["conv_kernel"] or None,
        attention_probs_dropout_prob=0.0,
    )
    return WithOutput(NystromformerSelfAttention(config), dim)


def _nystrom_attention(options: dict, length: int, dim: int, heads: int) -> nn.Module:
    from nystrom_attention import NystromAttention

    del length
    return NystromAttention(
        dim=dim,
        dim_head=dim // heads,
        heads=heads,
        num_landmarks=options["num_landmarks"],
        pinv_iterations=options["pinv_iterations"],
        residual=options["conv_kernel"] > 0,
        residual_conv_kernel=options["conv_kernel"],
    )


def _linformer(options: dict, length: int, dim: int, heads: int) -> nn.Module:
    from linformer import LinformerSelfAttention

    if not isinstance(options["proj_dim"], int) or options["projection"] != "linear":
        raise ValueError("linformer has one proj_dim and linear projections")
    return LinformerSelfAttention(
        dim,
        length,
        k=options["proj_dim"],
        heads=heads,
        share_kv={"heads", "kv"} <= set(options["share"]),
    )


def _performer(options: dict, length: int, dim: int, heads: int) -> nn.Module:
    from performer_pytorch import SelfAttention

    del length
    return SelfAttention(
        dim,
        heads=heads,
        dim_head=dim // heads,
        nb_features=options["num_features"],
        generalized_attention=options["kernel"] == "relu",
    )


def _reformer(options: dict, length: int, dim: int, heads: int) -> nn.Module:
    from transformers import ReformerConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention
    from transformers.utils import logging

    logging.set_verbosity_error()  # it logs its number of buckets
    config = ReformerConfig(
        hidden_size=dim,
        num_attention_heads=heads,
        attention_head_size=dim // heads,
        num_hashes=options["num_hashes"],
        lsh_attn_chunk_length=options["chunk_length"],
        lsh_attention_probs_dropout_prob=0.0,
        max_position_embeddings=length,
        is_decoder=False,
    )
    return WithOutput(LSHSelfAttention(config, layer_idx=0), dim, bias=False)


class Longformer(WithOutput):
    """Longformer of transformers without global tokens, with an output projection."""

    def __init__(self, options: dict, dim: int, heads: int):
        from transformers import LongformerConfig
        from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

        config = LongformerConfig(
            hidden_size=dim,
            num_attention_heads=heads,
            attention_window=[2 * options["window"]],
            attention_probs_dropout_prob=0.0,
        )
        super().__init__(LongformerSelfAttention(config, layer_id=0), dim)

    def forward(self, x: Tensor) -> Tensor:
        """Compute self-attention within the window."""
        local = torch.zeros(x.shape[:2], device=x.device)  # 0: a real token, not a global one
        out = self.attention(
            x, attention_mask=local, is_index_masked=local < 0, is_global_attn=False
        )
        return self.output(out[0])


_MODULES = {
    ("standard", "torch sdpa"): lambda o, n, dim, heads: Softmax(dim, heads, fused=True),
    ("standard", "torch plain"): lambda o, n, dim, heads: Softmax(dim, heads, fused=False),
    ("nystrom", "transformers"): _nystromformer,
    ("nystrom", "nystrom-attention"): _nystrom_attention,
    ("linformer", "linformer"): _linformer,
    ("performer", "performer-pytorch"): _performer,
    ("reformer", "transformers"): _reformer,
    ("longformer", "transformers"): lambda o, n, dim, heads: Longformer(o, dim, heads),
}
