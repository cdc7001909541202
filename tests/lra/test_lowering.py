"""Every step is lowered for TPUs and GPUs, on a machine that needs to have neither."""

import functools

import jax
import jax.numpy as jnp
import pytest

from configs.default import ATTENTIONS
from lra.programs import make_programs
from models.machine import Machine, assumed
from tests.suites import slow_but
from tests.triton_lowering import TRITON_IS_LEAVING, on_an_h100

PLATFORMS = ("tpu", "cuda")
every_attention = pytest.mark.parametrize(
    "attention", slow_but(("standard", "nystrom", "reformer"), ATTENTIONS)
)


@pytest.fixture(scope="module")
def trainer_of(tiny_trainer):
    """The trainer of an attention, made once."""
    return functools.cache(lambda attention: tiny_trainer("listops", attention, "seeds=(0, 1)"))


def check(trainer, platforms=PLATFORMS):
    """Lower training and evaluation for each, traced anew; nothing is compiled or run."""
    state = trainer.abstract_state()
    config, batches = trainer.config, 2
    sizes = (len(config.seeds), batches, config.train.eval_batch_size)
    evaluation = (
        jax.ShapeDtypeStruct((*sizes, trainer.task.num_classes), jnp.float32),
        state.params,
        state.rest,
        trainer._examples["validation"],
        jnp.zeros(sizes[1:], jnp.int32),
        0,
        batches,
    )
    programs = make_programs(
        config,
        trainer.task,
        trainer.length,
        graphdef=trainer.graphdef,
        plan=trainer.plan,
        shardings=trainer.shardings,
        donate=True,
    )
    for function, arguments in (
        (programs.train, trainer.train_arguments(state, 0, 2)),
        (programs.logits, evaluation),
    ):
        traced = function.trace(*arguments)
        for platform in platforms:
            text = traced.lower(lowering_platforms=(platform,)).as_text()
            assert "stablehlo.while" in text  # the loop over steps is on the device
            assert "callback" not in text  # and calls nothing on the host


@every_attention
def test_every_attention(trainer_of, attention):
    check(trainer_of(attention))


@every_attention
def test_as_a_gpu_would_have_it(trainer_of, attention, monkeypatch):
    """With the sizes of blocks and the implementations that are chosen there."""
    built = trainer_of(attention)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    check(built, ("cuda",))


@pytest.mark.slow
def test_pairs_in_bfloat16_with_everything_that_saves_memory(tiny_trainer):
    overrides = ("dtype=bfloat16", "model.remat=True", "train.microbatches=2")
    check(tiny_trainer("retrieval", "nystrom", *overrides, "train.max_grad_norm=1.0"))


@pytest.mark.slow
def test_pixels_with_blockwise_attention(tiny_trainer):
    check(tiny_trainer("image", "standard", "model.attention.implementation=chunked"))


@TRITON_IS_LEAVING
def test_attention_in_kernels(tiny_trainer, monkeypatch):
    """The kernels of two seeds, inside the loops over steps and batches."""
    heads = ("model.num_heads=1", "model.head_dim=16")
    overrides = ("model.attention.implementation=flash", "seeds=(0, 1)", *heads)
    with on_an_h100(monkeypatch), assumed(Machine("gpu", has_cudnn=True)):
        check(tiny_trainer("listops", "standard", *overrides), ("cuda",))
