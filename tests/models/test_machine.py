"""What a model takes its machine to be."""

import types

import jax

from models.machine import this_backend, this_machine


def test_the_default_device_is_the_machine(monkeypatch):
    cpu = jax.devices("cpu")[0]
    client = types.SimpleNamespace(platform_version="PJRT C API\ncuda 13010")
    gpu = types.SimpleNamespace(
        client=client, compute_capability="9.0", memory_stats=lambda: {"bytes_limit": 80}
    )
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    monkeypatch.setattr(
        jax, "local_devices", lambda backend="gpu": {"gpu": [gpu], "cpu": [cpu]}[backend]
    )
    assert this_machine() == ("gpu", 80, True, True, True)
    for capability, kernels in (("8.0", (True, True, False)), ("7.0", (False, False, False))):
        gpu.compute_capability = capability
        assert this_machine()[2:] == kernels
    for chosen in (cpu, "cpu"):
        with jax.default_device(chosen):
            assert this_backend() == "cpu"
            assert not this_machine().has_cudnn
            assert not this_machine().runs_kernels
