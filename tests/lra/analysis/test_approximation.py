"""Curves of errors: their sizes, what they tend to, what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lra.analysis import approximation
from lra.analysis.approximation import approximation_rows, own_rows
from lra.analysis.inputs import random_inputs
from lra.analysis.matrices import (
    best_rank_errors,
    exact_matrix,
    matrix_errors,
    module_matrix,
)
from lra.analysis.methods import (
    METHODS,
    Method,
    choose_methods,
    chunk_length,
    sizes_of,
    too_large,
)
from lra.errors import UserError
from models.attention import ATTENTIONS, make
from models.attention.contract import Attention

INPUTS = random_inputs(examples=2, length=16, heads=2, head_dim=8)


def method(name, variant=""):
    (found,) = [m for m in METHODS if (m.attention, m.variant) == (name, variant)]
    return found


def errors(name, variant="", sizes=None):
    rows = list(approximation_rows(INPUTS, [method(name, variant)], sizes))
    return {
        size: max(row["matrix_error"] for row in rows if row["size"] == size)
        for size in sorted({row["size"] for row in rows})
    }


def test_default_sizes():
    assert sizes_of(method("nystrom"), 512, None) == [16, 32, 64, 128, 256, 512]
    assert sizes_of(method("linformer", "random E"), 63, None) == [2, 4, 8, 16, 32, 63]
    assert sizes_of(method("performer"), 512, None) == [16, 64, 256, 1024]
    assert sizes_of(method("reformer"), 512, None) == [1, 2, 4, 8, 16]
    assert sizes_of(method("longformer"), 64, None) == [1, 2, 4, 8, 16, 32]
    assert sizes_of(method("linear"), 512, None) == [0]


def test_sizes_above_the_length_are_left_out_and_told():
    wanted = [8, 64]
    assert sizes_of(method("nystrom"), 32, wanted) == [8]
    assert sizes_of(method("performer"), 32, wanted) == [8, 64]
    left_out = too_large(METHODS, 32, wanted)
    assert {(m.option, size) for m, size in left_out} == {
        ("num_landmarks", 64),
        ("proj_dim", 64),
        ("window", 64),
    }


def test_ranks_count_the_keys_that_a_query_sees():
    assert method("nystrom").rank_at(64, 512) == 64
    assert method("reformer").rank_at(1, 512) == 128
    assert method("reformer").rank_at(16, 512) == 512
    assert method("longformer").rank_at(8, 512) == 17
    assert chunk_length(16) == 4


def test_the_size_of_a_nystrom_of_ones_own_is_what_these_positions_have(float64):
    rows = {}
    for length, landmarks in ((16, 2), (32, 4)):  # both in segments of 8 positions
        sizes = {"length": length, "heads": 2, "head_dim": 8, "num_landmarks": landmarks}
        attention = make("nystrom", **sizes, conv_kernel=0, rngs=nnx.Rngs(0))
        config = {"name": "nystrom", "num_landmarks": landmarks}
        rows[length] = list(own_rows(INPUTS, [attention], config))
    assert {row["size"] for row in rows[32]} == {2}
    assert rows[32] == rows[16]


@pytest.mark.parametrize("projection", ["max_pool", "conv"])
def test_a_linformer_that_has_no_matrix_has_no_errors_of_its_own(projection, capsys):
    config = {"name": "linformer", "proj_dim": 8, "projection": projection}
    sizes = {"length": INPUTS.length, "heads": 2, "head_dim": 8}
    attention = make(**config, **sizes, rngs=nnx.Rngs(0))
    assert list(own_rows(INPUTS, [attention], config)) == []
    out = "linformer has no matrix, as its outputs are not linear in values: no errors of its own\n"
    assert capsys.readouterr().out == out


def test_a_linformer_is_judged_by_its_own_projections(float64):
    config = {"name": "linformer", "proj_dim": 4, "projection": "linear"}
    attention = make(**config, length=INPUTS.length, heads=2, head_dim=8, rngs=nnx.Rngs(7))
    q, k, v, mask = INPUTS.layer(0)
    graphdef, state = nnx.split(attention)
    exact = exact_matrix(q, k, mask)
    of_model = matrix_errors(module_matrix(graphdef, state, q, k, mask), exact, v)
    found = [row["matrix_error"] for row in own_rows(INPUTS, [attention], config)]
    np.testing.assert_allclose(found, np.mean(of_model.matrix, axis=0), rtol=1e-12)


def test_each_head_of_a_linformer_is_compared_at_its_own_size(float64):
    config = {"name": "linformer", "proj_dim": ((2, 5),), "share": ("kv",), "projection": "linear"}
    attention = make(**config, length=INPUTS.length, heads=2, head_dim=8, rngs=nnx.Rngs(7))
    rows = list(own_rows(INPUTS, [attention], config))
    assert [(row["head"], row["size"], row["rank"]) for row in rows] == [(0, 2, 2), (1, 5, 5)]
    q, k, v, mask = INPUTS.layer(0)
    best = best_rank_errors(exact_matrix(q, k, mask), v)
    for name, errors_of_best in best._asdict().items():
        expected = [np.mean(errors_of_best[:, head, rank]) for head, rank in ((0, 2), (1, 5))]
        assert [row[f"best_rank_{name}_error"] for row in rows] == pytest.approx(expected)


@pytest.mark.parametrize(("chunk", "rank"), [(2, 8), (4, 16), (16, 16), (32, 16)])
def test_the_rank_of_a_reformer_of_ones_own_is_by_its_own_chunks(chunk, rank, float64):
    """Two rounds, in each a chunk and the one before; all positions where they are one chunk."""
    config = {"name": "reformer", "num_hashes": 2, "chunk_length": chunk}
    sizes = {"length": 32, "heads": 2, "head_dim": 8}  # the model's; 16 positions are analysed
    attention = make(**config, **sizes, rngs=nnx.Rngs(params=0, attention=0))
    rows = list(own_rows(INPUTS, [attention], config))
    assert {row["rank"] for row in rows} == {rank}
    if chunk >= INPUTS.length:  # what it is compared with
        assert max(row["matrix_error"] for row in rows) < 1e-12


def test_nystrom_comes_closer_with_landmarks(float64):
    found = errors("nystrom", sizes=[4, 8, 16])
    assert found[4] > found[8] > found[16]


def test_pooling_at_every_position_is_exact(float64):
    assert errors("linformer", "mean pooling", [16])[16] < 1e-12


@pytest.mark.slow
def test_more_features_and_hash_rounds_come_closer(float64):
    features = errors("performer", sizes=[8, 64, 512, 4096])
    assert features[8] > features[64] > features[512] > features[4096]
    assert features[4096] < features[8] / 2
    rounds = errors("reformer")
    assert rounds[16] < rounds[1] / 2


def test_rows_hold_the_bound_and_the_draws(float64):
    rows = list(approximation_rows(INPUTS, [method("linformer", "random E")], [4]))
    assert [row["head"] for row in rows] == [0, 1]
    for row in rows:
        assert row["draws"] == approximation.DRAWS
        assert 0 < row["best_rank_matrix_error"] < row["matrix_error"]
    assert next(approximation_rows(INPUTS, [method("nystrom")], [4]))["draws"] == 1


def test_every_draw_has_arrays_of_its_own(float64, monkeypatch):
    monkeypatch.setattr(approximation, "DRAWS", 1)
    first = errors("linformer", "random E", [4])[4]
    monkeypatch.setattr(approximation, "DRAWS", 2)
    assert abs(errors("linformer", "random E", [4])[4] - first) > 1e-3


@pytest.mark.parametrize(
    ("names", "expected"), [(["nystrm"], "did you mean 'nystrom'"), (["standard"], "compared")]
)
def test_unknown_methods_are_refused(names, expected):
    with pytest.raises(UserError, match=expected):
        choose_methods(names)


def test_chosen_methods_bring_all_their_variants():
    assert [m.variant for m in choose_methods(["linformer"])] == ["mean pooling", "random E"]


class Mean(Attention):
    """The mean of the values to some power, for sequences of an even length: one of one's own."""

    def __init__(self, *, length, heads, head_dim, layer=0, shared=None, rngs, power: int = 1):
        if length % 2:
            raise ValueError(f"length is {length}, not even")
        self.power = power

    def __call__(self, q, k, v, mask, *, key=None):
        return jnp.broadcast_to(jnp.mean(v**self.power, axis=1, keepdims=True), v.shape)


def mean(power=1):
    return Mean(length=16, heads=2, head_dim=8, rngs=nnx.Rngs(0), power=power)


def test_an_attention_of_ones_own_is_judged_at_its_default_options(float64, monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "mean", Mean)
    methods = choose_methods(["mean"])
    assert methods == [Method("mean", "")]
    assert methods[0] not in choose_methods(None)
    (first, second) = approximation_rows(INPUTS, methods, None)
    assert 0 < first["matrix_error"] < 2
    assert (first["head"], second["head"], first["size"], first["rank"]) == (0, 1, 0, None)
    own = list(own_rows(INPUTS, [mean()], {"name": "mean", "power": 1}))
    assert own == [row | {"variant": "own"} for row in (first, second)]


def test_one_that_has_no_matrix_or_does_not_fit_is_refused(float64, monkeypatch, capsys):
    monkeypatch.setitem(ATTENTIONS, "mean", Mean)
    odd = random_inputs(examples=1, length=15, heads=2, head_dim=8)
    with pytest.raises(UserError, match="mean does not fit 15 positions: length is 15, not even"):
        list(approximation_rows(odd, choose_methods(["mean"]), None))
    squares = Method("mean", "", options={"power": 2})
    with pytest.raises(UserError, match="mean has no matrix, as its outputs are not linear"):
        list(approximation_rows(INPUTS, [squares], None))
    assert list(own_rows(INPUTS, [mean(2)], {"name": "mean", "power": 2})) == []
    assert "mean has no matrix" in capsys.readouterr().out


def test_positions_that_are_no_token_are_not_in_the_exact_matrix(float64):
    mask = np.ones((2, 16), bool)
    mask[:, [3, 9]] = False
    pooled = method("linformer", "mean pooling")  # exact with a window for each position
    rows = list(approximation_rows(INPUTS._replace(mask=mask), [pooled], [16]))
    assert max(row["matrix_error"] for row in rows) < 1e-12


def test_an_attention_that_is_judged_keeps_its_convolution(float64):
    config = {"name": "nystrom", "num_landmarks": 4}
    attention = make(**config, length=16, heads=2, head_dim=8, rngs=nnx.Rngs(0))
    assert list(own_rows(INPUTS, [attention], config))
    assert attention.kernel is not None


def test_a_nystrom_of_ones_own_is_judged_without_its_convolution(float64):
    sizes = {"name": "nystrom", "num_landmarks": 4, "length": 16, "heads": 2, "head_dim": 8}
    config = {"name": "nystrom", "num_landmarks": 4}
    found = []
    for width in (0, 35):
        attention = make(**sizes, conv_kernel=width, rngs=nnx.Rngs(0))
        found.append([row["matrix_error"] for row in own_rows(INPUTS, [attention], config)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
