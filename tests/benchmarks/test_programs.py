"""The programs that are measured compute what they say."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import programs
from benchmarks.cases import OURS, Case, Contender
from lra import plan

CASE = Case("module", "forward", length=64, batch=2, dim=16, heads=2, dtype="float32")
METHODS = {
    "standard": {"implementation": "xla"},
    "nystrom": {"num_landmarks": 8},
    "reformer": {"chunk_length": 16},
}


def contender(method, peer=OURS, **options):
    return Contender(method, options, peer, method)


def outputs(program):
    return program._compiled(*program._arguments)


@pytest.mark.parametrize("method", METHODS)
def test_a_step_has_a_gradient_for_every_parameter_and_the_input(method):
    chosen = contender(method, **METHODS[method])
    program = programs.build(chosen, dataclasses.replace(CASE, mode="forward_backward"))
    out, (gradients, dx) = outputs(program)
    params, _, x, *_ = program._arguments
    assert jax.tree.map(lambda a: a.shape, gradients) == jax.tree.map(lambda a: a.shape, params)
    assert out.shape == dx.shape == x.shape
    # Those of query and key cannot be told from rounding by their size; that of value can.
    assert float(abs(gradients.value.kernel[...]).max()) > 1e-3


def test_jax_nn_is_exact_attention_between_the_same_projections():
    case = CASE
    ours = outputs(programs.build(contender("standard", implementation="xla"), case))
    theirs = outputs(programs.build(contender("standard", "jax.nn"), case))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_call_waits_for_its_results():
    waited = []

    class Result:
        def block_until_ready(self):
            waited.append(self)

    program = programs.Program(lambda x: 2 * x, lambda: (jnp.ones(3),))
    result = Result()
    program._compiled = lambda x: result
    program.run()
    assert waited == [result]


def test_the_analysis_counts_arguments_and_products():
    case = CASE
    program = programs.build(contender("standard", implementation="xla"), case)
    analysis = program.analysis
    out_and_scores = 2 * 64 * 16 * 4 + 2 * 2 * 64 * 64 * 4
    assert analysis["memory"] >= program.argument_bytes + out_and_scores
    projections, attention = 4 * 2 * 128 * 16 * 16, 2 * 2 * (2 * 64 * 64 * 16)
    assert analysis["flops"] >= projections + attention
    assert analysis["bytes_accessed"] > program.argument_bytes


def test_what_a_program_needs_is_known_where_its_arguments_do_not_fit():
    case = dataclasses.replace(CASE, batch=2**24, length=4096)
    analysis = programs.build(contender("linear"), case).analysis
    assert analysis["memory"] >= 2 * 2**24 * 4096 * 16 * 4


@pytest.mark.parametrize(
    ("mode", "dtype"), [("forward", "float32"), ("forward_backward", "bfloat16")]
)
def test_an_example_brings_its_arguments_and_outputs(mode, dtype):
    def total(batch):
        sizes = dataclasses.replace(CASE, mode=mode, dtype=dtype, batch=batch)
        program = programs.build(contender("linear"), sizes)
        arrays = jax.tree.leaves((program._arguments, outputs(program)))
        return sum(x.nbytes for x in arrays), sizes.example_bytes

    (one, each), (three, _) = total(1), total(3)
    assert three - one == 2 * (each + CASE.length)  # a byte of the mask for each position


def test_a_loop_counts_every_turn():
    case = dataclasses.replace(CASE, mode="forward_backward", length=1024)
    chunked = programs.build(contender("standard", implementation="chunked"), case).analysis
    whole = programs.build(contender("standard", implementation="xla"), case).analysis
    assert chunked["flops"] >= 2 * 2 * (2 * 1024 * 1024 * 16)
    assert chunked["bytes_accessed"] > 2 * 4 * 1024 * 1024  # of each turn's scores
    assert chunked["memory"] < whole["memory"]


def test_a_model_is_a_training_step_of_the_configuration_in_parts(monkeypatch):
    monkeypatch.setattr(plan, "number_of_parts", lambda batch, numbers: batch)
    case = dataclasses.replace(CASE, benchmark="model", mode="forward_backward", dim=64)
    program = programs.build(contender("linear"), case)
    assert program.analysis["parts"] == case.batch
    state, metrics = outputs(program)
    before = program._arguments[0]
    assert np.isfinite(metrics.loss)
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), state.params, before.params)
    assert any(jax.tree.leaves(changed))


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_model_takes_options_that_are_tuples_or_lists(kind):
    case = dataclasses.replace(CASE, benchmark="model", mode="forward_backward", dim=64)
    options = {"proj_dim": kind([kind([4, 8]), kind([4, 4])]), "share": kind(["kv"])}
    programs.check(contender("linformer", **options), case)


def test_a_case_that_a_method_refuses_is_a_value_error():
    with pytest.raises(ValueError, match="num_landmarks"):
        programs.check(contender("nystrom", num_landmarks=0), CASE)
