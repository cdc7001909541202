"""The official PyTorch classifier of the Nyströmformer's LRA code, as golden arrays.

`golden/mlpen_model_softmax.npz`: initial parameters, ten batches, the logits of the first and the
losses of ten AdamW steps of a tiny softmax model (2 layers, width 32, 2 heads of 16, dropout 0).
"""

import pathlib

import numpy as np
from flax import nnx

from lra.settings import load_config
from models.heads import Classifier

ARRAYS = np.load(pathlib.Path(__file__).parent / "golden" / "mlpen_model_softmax.npz")

OVERRIDES = (
    "model.dim=32",
    "model.mlp_dim=64",
    "model.num_heads=2",
    "model.head_dim=16",
    "model.dropout=0.0",
    "model.attention.dropout=0.0",
    "train.learning_rate=1e-3",
    "train.steps=10",
    "train.warmup_steps=3",
    "train.batch_size=8",
)


def config(*overrides: str):
    """The configuration of the golden run."""
    return load_config("configs/listops.py:standard", (*OVERRIDES, *overrides))


def classifier(config) -> Classifier:
    """Our classifier with the golden run's initial parameters."""
    model = Classifier(
        config.model.to_dict(),
        vocab_size=32,
        length=64,
        num_classes=10,
        dtype=config.dtype,
        rngs=nnx.Rngs(0),
    )
    model.encoder.token[...] = _array("model.embeddings.word_embeddings.weight")
    model.encoder.position[...] = _array("model.embeddings.position_embeddings.weight")
    for index, block in enumerate(model.encoder.blocks):
        name = f"model.transformer_{index}"
        _load_norm(block.attention_norm, f"{name}.norm1")
        _load_linear(block.attention.query, f"{name}.mha.W_q")
        _load_linear(block.attention.key, f"{name}.mha.W_k")
        _load_linear(block.attention.value, f"{name}.mha.W_v")
        _load_linear(block.attention.output, f"{name}.mha.ff")
        _load_norm(block.mlp_norm, f"{name}.norm2")
        _load_linear(block.mlp_in, f"{name}.mlpblock.0")
        _load_linear(block.mlp_out, f"{name}.mlpblock.3")
    _load_norm(model.encoder.norm, "model.norm")
    _load_linear(model.hidden, "seq_classifer.mlpblock.0")
    _load_linear(model.logits, "seq_classifer.mlpblock.2")
    return model


def _array(name: str) -> np.ndarray:
    return ARRAYS[f"param:{name}"]


def _load_linear(layer: nnx.Linear, name: str) -> None:
    layer.kernel[...] = _array(f"{name}.weight").T
    layer.bias[...] = _array(f"{name}.bias")


def _load_norm(layer: nnx.LayerNorm, name: str) -> None:
    layer.scale[...] = _array(f"{name}.weight")
    layer.bias[...] = _array(f"{name}.bias")
