"""PyTorch counterpart of the classifier of `models.heads` for each attention, for timing only.

Sizes come from the same configuration. Exact attention, Linformer and Performer are those of
`benchmarks.torch_attentions`: with the same parameters they give the same logits as ours, which is
tested. Nyström and Reformer are those of `benchmarks.torch_hugging_face`, which documents how they
differ.
"""

from collections.abc import Callable
from typing import Any

import torch
from ml_collections import config_dict
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import torch_attentions
from lra.data import prepared
from lra.tasks import Task


def attention_class(name: str) -> type[nn.Module]:
    """Return the PyTorch counterpart of an attention; import transformers only if it is needed."""
    if name in ("nystrom", "reformer"):
        from benchmarks import torch_hugging_face as module
    else:
        module = torch_attentions
    return getattr(module, name.title())


class Block(nn.Module):
    """One pre-norm encoder layer, like `models.block.Block`."""

    def __init__(self, model: dict[str, Any], attention: nn.Module):
        super().__init__()
        dim, mlp_dim = model["dim"], model["mlp_dim"]
        self.attention_norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = attention
        self.output = nn.Linear(model["num_heads"] * model["head_dim"], dim)
        self.mlp_in, self.mlp_out = nn.Linear(dim, mlp_dim), nn.Linear(mlp_dim, dim)
        self.dropout = nn.Dropout(model["dropout"])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.dropout(self.output(self.attention(self.attention_norm(x), mask)))
        hidden = self.dropout(functional.gelu(self.mlp_in(self.mlp_norm(x))))
        return x + self.dropout(self.mlp_out(hidden))


class Classifier(nn.Module):
    """Embeddings, blocks, mean over the padded length, and an MLP: ids and mask to logits.

    Args:
        model: Section `model` of a configuration.
        task: Task, with its vocabulary, its classes, and whether an example is a pair.
        length: Length of the padded sequences.
    """

    def __init__(self, model: dict[str, Any], task: Task, length: int):
        super().__init__()
        dim, hidden = model["dim"], model["mlp_dim"]
        self.token = nn.Embedding(task.vocab_size, dim)
        self.position = nn.Parameter(torch.empty(length, dim))
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.position, std=0.02)
        self.dropout = nn.Dropout(model["dropout"])
        self.blocks = nn.ModuleList()
        make_attention = attention_class(model["attention"]["name"])
        for _ in range(model["num_layers"]):
            shared = self.blocks[0].attention if len(self.blocks) else None
            attention = make_attention(model, length, shared)
            self.blocks.append(Block(model, attention))
        self.norm = nn.LayerNorm(dim)
        self.pairs = task.pairs
        self.hidden = nn.Linear((4 if task.pairs else 1) * dim, hidden)
        self.logits = nn.Linear(hidden, task.num_classes)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        pooled = self._pooled(ids.flatten(0, -2), mask.flatten(0, -2))
        if self.pairs:
            a, b = pooled.unflatten(0, (-1, 2)).unbind(1)
            pooled = torch.cat([a, b, a * b, a - b], -1)
        return self.logits(functional.relu(self.hidden(pooled)))

    def _pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.dropout(self.token(ids) + self.position)
        for block in self.blocks:
            x = block(x, mask)
        return (self.norm(x) * mask.unsqueeze(-1)).sum(1) / x.shape[1]


def training(
    config: config_dict.ConfigDict, task: Task, data_dir: str, compiled: bool
) -> tuple[Callable[[int], None], int]:
    """Prepare training; return a function that makes `count` steps, and the number of parameters.

    Batches are gathered by index from arrays in memory, as in `lra.trainer`.

    Args:
        config: Config of the run.
        task: Task to train on.
        data_dir: Folder of prepared data whose examples all have the same length.
        compiled: Whether to use `torch.compile`.
    """
    data = prepared.load(data_dir, task.name)
    split, length = data.split("train"), data.manifest["max_length"]
    padded = 1 << (length - 1).bit_length()
    tokens = torch.from_numpy(split.sequences.tokens.reshape(-1, length).copy())
    tokens = functional.pad(tokens, (0, padded - length))
    labels = torch.from_numpy(split.labels.astype("int64"))
    rows = torch.arange(len(labels)) if split.pairs is None else torch.tensor(split.pairs)
    not_padding = torch.arange(padded) < length
    classifier = Classifier(config.model.to_dict(), task, padded).train()
    model = torch.compile(classifier) if compiled else classifier
    optimizer, schedule = _optimizer(classifier, config.train)

    def batch() -> tuple[Tensor, Tensor, Tensor]:
        chosen = torch.randint(len(labels), (config.train.batch_size,))
        ids = tokens[rows[chosen]].long() + task.first_id
        mask = not_padding.expand(ids.shape)
        if config.data.zero_is_padding:
            mask = mask & (ids > 0)
        return ids * not_padding, mask, labels[chosen]

    def steps(count: int) -> None:
        total_loss, total_accuracy = torch.zeros(()), torch.zeros(())
        for _ in range(count):
            ids, mask, targets = batch()
            logits = model(ids, mask)
            loss = functional.cross_entropy(logits, targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total_loss += loss.detach()
            total_accuracy += (logits.detach().argmax(-1) == targets).float().mean()
        if not torch.isfinite(total_loss):
            raise FloatingPointError("the peer's loss is not finite")

    return steps, sum(parameter.numel() for parameter in classifier.parameters())


def _optimizer(model: nn.Module, train: config_dict.ConfigDict):
    """Return AdamW and the one-cycle schedule of `lra.optimizer`."""
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=train.learning_rate,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=train.weight_decay,
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=train.learning_rate,
        total_steps=train.steps,
        pct_start=train.warmup_steps / train.steps,
        anneal_strategy="linear",
    )
    return optimizer, schedule
