"""How programs are compiled; what they compute stands in test_trainer.py."""

import pytest

from lra.programs import compiler_options
from tests.suites import slow_but


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


@pytest.mark.parametrize(
    ("asked", "named"),
    slow_but(
        [("tensorfloat32", "HIGH")],
        [("float32", "HIGHEST"), ("tensorfloat32", "HIGH"), ("bfloat16", "DEFAULT")],
    ),
)
def test_products_are_taken_in_the_precision_asked_for(tiny_trainer, asked, named):
    trainer = tiny_trainer("listops", "linear", f"matmul_precision={asked}")
    state = trainer.abstract_state()
    evaluation = trainer.new_evaluation(state.params, state.rest, "validation")
    for program, arguments in (
        (trainer.programs.train, trainer.train_arguments(state, 0, 1)),
        (trainer.programs.logits, evaluation.arguments(1)),
    ):
        text = program.lower(*arguments).as_text()
        products = [line for line in text.splitlines() if "dot_general" in line]
        assert products
        assert all(f"precision = [{named}, {named}]" in line for line in products)
