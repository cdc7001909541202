"""Exact attention, Linformer and Performer in plain PyTorch, for `benchmarks.torch_models`.

Exact attention materialises its softmax and drops a tenth of it; nothing is recomputed in the
backward pass. Linformer shares one projection as ours does, and Performer has the same features.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LOWEST_SCORE = -1e9  # added to the scores of masked keys
_PERFORMER_EPSILON = 1e-4


def attention_bias(mask: Tensor) -> Tensor:
    """Return 0 at real keys and a large negative number at padding, [batch, 1, 1, length]."""
    return torch.where(mask[:, None, None, :], 0.0, LOWEST_SCORE)


class Projected(nn.Module):
    """Query, key and value projections before `attend(q, k, v, mask)`, a method of subclasses."""

    def __init__(self, model: dict[str, Any]):
        super().__init__()
        self.heads, self.head_dim = model["num_heads"], model["head_dim"]
        width = self.heads * self.head_dim
        self.query = nn.Linear(model["dim"], width)
        self.key = nn.Linear(model["dim"], width)
        self.value = nn.Linear(model["dim"], width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map [batch, length, dim] and a mask [batch, length] to [batch, length, width]."""

        def split_heads(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

        q, k, v = (split_heads(project(x)) for project in (self.query, self.key, self.value))
        return self.attend(q, k, v, mask).transpose(1, 2).flatten(2)


class Standard(Projected):
    """Exact attention with the whole softmax matrix in memory, and dropout."""

    def __init__(self, model: dict[str, Any], length: int, shared: nn.Module | None):
        super().__init__(model)
        del length, shared
        self.dropout = model["attention"]["dropout"]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = (q / math.sqrt(self.head_dim)) @ k.transpose(-1, -2)
        scores += attention_bias(mask)  # in place: the product's gradient does not need it
        weights = functional.dropout(torch.softmax(scores, -1), self.dropout, self.training)
        return weights @ v


class Linformer(Projected):
    """Linformer; each head has one projection along the length for keys, values and all layers."""

    def __init__(self, model: dict[str, Any], length: int, shared: nn.Module | None):
        super().__init__(model)
        shape = (self.heads, model["attention"]["proj_dim"], length)
        self.e = nn.Parameter(0.02 * torch.randn(shape)) if shared is None else shared.e

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        real = mask[:, None, :, None]
        keys, values = self.e @ (k * real), self.e @ (v * real)
        scores = (q / math.sqrt(self.head_dim)) @ keys.transpose(-1, -2)
        return torch.softmax(scores, -1) @ values


class Performer(Projected):
    """Performer with positive orthogonal random features of the softmax kernel."""

    def __init__(self, model: dict[str, Any], length: int, shared: nn.Module | None):
        super().__init__(model)
        del length, shared
        features = model["attention"]["num_features"]
        blocks = -(-features // self.head_dim)
        directions, _ = torch.linalg.qr(torch.randn(blocks, self.head_dim, self.head_dim))
        norms = torch.randn(features, self.head_dim).norm(dim=1, keepdim=True)
        self.register_buffer("projection", directions.flatten(0, 1)[:features] * norms)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        real = mask[:, None, :, None]
        queries, keys = self._features(q, (-1,)), self._features(k, (-1, -2)) * real
        out = queries @ (keys.transpose(-1, -2) @ v)
        return out / (queries @ keys.sum(2).unsqueeze(-1))

    def _features(self, x: Tensor, peak_over: tuple[int, ...]) -> Tensor:
        projected = x @ (self.projection.T * self.head_dim**-0.25)
        half = x.square().sum(-1, keepdim=True) / (2 * math.sqrt(self.head_dim))
        peak = projected.amax(peak_over, keepdim=True).detach()
        return torch.exp(projected - half - peak) + _PERFORMER_EPSILON
