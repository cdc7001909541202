"""The code of the GPU kernels, as JAX lowers it on any machine: did a change of ours change it?

    python tests/campaigns/kernel_code.py . > here.txt
    python tests/campaigns/kernel_code.py OTHER_CHECKOUT > other.txt

prints a line for each kernel of an encoder's training step (bfloat16, one H200): the attention, the
kernel's name, and a hash of its Triton IR without names and without places in the source. Both
commands need the same version of JAX, of which they read private functions.
"""

import contextlib
import hashlib
import importlib
import os
import pathlib
import re
import sys
import warnings
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp
from flax import nnx
from jax._src.pallas.triton import lowering
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

ATTENTIONS = ("standard", "nystrom", "linformer", "performer", "reformer")
SIZES = {"vocab_size": 260, "length": 1024, "num_layers": 1, "dim": 64, "mlp_dim": 128}
SIZES |= {"num_heads": 2, "head_dim": 32, "dropout": 0.1, "positions": "learned", "remat": False}


def kernels(attention: str) -> list[tuple[str, str]]:
    """Name and hash of each kernel of the training step, in the order of lowering."""
    encoder = importlib.import_module("models.encoder").Encoder(
        **SIZES,
        attention={"name": attention},
        dtype=jnp.bfloat16,
        rngs=nnx.Rngs(0, attention=1),
    )
    graph, state = nnx.split(encoder)

    def loss(state, ids, mask, keys):
        return jnp.sum(nnx.merge(graph, state)(ids, mask, keys).astype(jnp.float32))

    shape = (4, SIZES["length"])
    ids, mask = (jax.ShapeDtypeStruct(shape, dtype) for dtype in (jnp.int32, jnp.bool_))
    keys = jax.random.split(jax.random.key(0), shape[0])
    gradient = jax.jit(jax.grad(loss, allow_int=True))
    with _on_an_h200(), _recorded() as modules:
        gradient.trace(state, ids, mask, keys).lower(lowering_platforms=("cuda",))
    return [_describe(text) for text in modules]


def _describe(text: str) -> tuple[str, str]:
    (name,) = re.findall(r"tt\.func public @(\w+)", text)
    code = re.sub(rf"@_?{re.escape(name)}\b|@{re.escape(name.strip('_'))}\b", "@kernel", text)
    return name, hashlib.sha256(code.encode()).hexdigest()[:12]


@contextlib.contextmanager
def _recorded() -> Iterator[list[str]]:
    """Grid and IR of every kernel that is lowered in the block."""
    modules, lower = [], lowering.lower_jaxpr_to_triton_module

    def recording(*arguments, **options):
        result = lower(*arguments, **options)
        code = result.module.operation.get_asm(enable_debug_info=False)
        modules.append(f"{result.grid}\n{code}")
        return result

    with mock.patch.object(lowering, "lower_jaxpr_to_triton_module", recording):
        yield modules


@contextlib.contextmanager
def _on_an_h200() -> Iterator[None]:
    try:
        machine = importlib.import_module("models.machine")
    except ImportError:
        machine = importlib.import_module("models.attention.machine")  # up to f400213
    names = set(machine.Machine._fields) - {"backend", "memory"}
    device = AbstractDevice("NVIDIA H200", num_cores=None, platform="gpu")
    with (
        mock.patch.object(jax, "default_backend", return_value="gpu"),
        use_abstract_mesh(AbstractMesh((), (), abstract_device=device)),
        machine.assumed(machine.Machine("gpu", **dict.fromkeys(names, True))),
    ):
        yield


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, os.fspath(root))
    warnings.simplefilter("ignore")  # Triton's deprecation
    for attention in ATTENTIONS:
        for name, code in kernels(attention):
            print(attention, name.strip("_"), code)
