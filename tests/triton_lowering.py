"""Lowers Pallas's kernels for a GPU on machines that have none."""

import contextlib
from collections.abc import Iterator

import jax
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

# From JAX 0.11 on.
TRITON_IS_LEAVING = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")


@contextlib.contextmanager
def on_an_h100(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is traced and lowered inside takes the backend for that of such GPUs.

    From 0.11 on JAX must know which GPU it lowers a kernel for.
    """
    device = AbstractDevice("NVIDIA H100", num_cores=None, platform="gpu")
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        with use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
            yield
