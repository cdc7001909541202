"""How programs are compiled; what they compute stands in test_trainer.py."""

import pytest

from lra.programs import compiler_options


@pytest.mark.parametrize(
    ("backend", "flags", "expected"),
    [
        ("cpu", None, {"xla_backend_optimization_level": 2}),
        ("cpu", "--xla_cpu_enable_fast_math=false", {"xla_backend_optimization_level": 2}),
        ("cpu", "--xla_backend_optimization_level=0", None),
        ("gpu", None, None),
        ("tpu", None, None),
    ],
)
def test_optimisation_is_lower_on_cpus_unless_flags_say_otherwise(
    backend, flags, expected, monkeypatch
):
    monkeypatch.setattr("jax.default_backend", lambda: backend)
    monkeypatch.delenv("XLA_FLAGS")
    if flags is not None:
        monkeypatch.setenv("XLA_FLAGS", flags)
    assert compiler_options() == expected
