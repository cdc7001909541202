"""What every attention of the registry must do, in each of the cases of `tests.attention_cases`."""

import functools
import inspect
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.extend.core import Literal

from models.attention import ATTENTIONS, make, options_of
from models.attention.contract import check_inputs, untrained_key
from models.attention.linear import linear_attention
from models.attention.linformer import linformer_attention
from models.attention.longformer import longformer_attention
from models.attention.nystrom import nystrom_attention
from models.attention.performer import orthogonal_features, performer_attention
from models.attention.reformer import reformer_attention
from models.attention.standard import standard_attention
from tests.attention_cases import CASES, SMALL, attention_of
from tests.programs import equations

# Length 37 divides into no number of landmarks, windows, chunks or blocks.
LENGTH, HEADS, HEAD_DIM = 37, 2, 8
ROWS = {"full": 0, "prefix": 1, "holes": 2, "one token": 3, "none": 4}


def slow_if(alike):
    return pytest.mark.slow if alike else ()


# The same as `standard` on a CPU, but for the rate of dropout; as `linformer conv`, but for how
# positions are joined; as `performer`, but for how features come about.
LIKE_ANOTHER = ("standard chunked", "linformer pooled", "performer unbiased", "performer relu")
every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=slow_if(case in LIKE_ANOTHER)) for case in CASES]
)


def build(case, seed=0):
    name, options = attention_of(case), CASES[case].options
    rngs = nnx.Rngs(params=seed, attention=seed + 1)
    return make(name, length=LENGTH, heads=HEADS, head_dim=HEAD_DIM, rngs=rngs, **options)


def masks():
    positions = np.arange(LENGTH)
    rows = {
        "full": positions >= 0,
        "prefix": positions < 21,
        "holes": np.random.default_rng(0).random(LENGTH) < 0.6,
        "one token": positions == 17,
        "none": positions < 0,
    }
    return np.stack([rows[name] for name in ROWS])


def inputs(case, dtype=jnp.float32, seed=0):
    """q, k, v (k = q where they are tied), and the weights of the loss."""
    draws = np.random.default_rng(seed).normal(size=(4, len(ROWS), LENGTH, HEADS, HEAD_DIM))
    q, k, v, g = (jnp.asarray(x, dtype) for x in draws)
    return q, q if ATTENTIONS[attention_of(case)].shares_qk else k, v, g


@functools.cache
def arrays_of(case, seed=0):
    return nnx.split(build(case, seed))[1]


@functools.cache
def compiled(case):
    """(arrays, q, k, v, mask, g, key) to the output and the gradients of sum(out * g) over it."""
    graph, _ = nnx.split(build(case))

    def loss(arrays, q, k, v, mask, g, key):
        out = nnx.merge(graph, arrays)(q, k, v, mask, key=key)
        return jnp.sum(jnp.where(mask[:, :, None, None], out * g, 0)), out

    def run(arrays, q, k, v, mask, g, key):
        gradients = jax.value_and_grad(loss, argnums=(0, 1, 2, 3), has_aux=True, allow_int=True)
        (_, out), gradients = gradients(arrays, q, k, v, mask, g, key)
        return out, gradients

    return jax.jit(run)


def run(case, q, k, v, g, mask=None, key=None, seed=0):
    mask = jnp.asarray(masks() if mask is None else mask)
    return compiled(case)(arrays_of(case, seed), q, k, v, mask, g, key)


def assert_finite(tree):
    for x in jax.tree.leaves(tree):
        assert np.isfinite(np.asarray(x, np.float64)).all()


def test_every_attention_has_a_case():
    assert set(SMALL) == set(ATTENTIONS), "a row of tests/attention_cases.py for each"
    assert set(map(attention_of, CASES)) == set(ATTENTIONS)


EVALUATION = [
    # Training does the same, and draws.
    pytest.param(
        name, None, id=f"{name}-evaluation", marks=slow_if(case.draws or name in LIKE_ANOTHER)
    )
    for name, case in CASES.items()
]
TRAINING = [
    # Those that do not draw ignore their key.
    pytest.param(
        name, 5, id=f"{name}-training", marks=slow_if(not case.draws or name in LIKE_ANOTHER)
    )
    for name, case in CASES.items()
]


@pytest.mark.parametrize(("case", "key"), [*EVALUATION, *TRAINING])
def test_shapes_formats_and_finite_gradients(case, key):
    key = None if key is None else jax.random.key(key)
    for dtype in (jnp.float32, jnp.bfloat16):
        q, k, v, g = inputs(case, dtype)
        out, gradients = run(case, q, k, v, g, key=key)
        assert out.shape == q.shape
        assert out.dtype == dtype
        assert all(x.dtype == dtype for x in gradients[1:])
        assert_finite((out, gradients))


@pytest.mark.parametrize("case", [case for case in CASES if attention_of(case) != "reformer"])
def test_no_gradient_asks_which_number_equals_the_largest(case):
    """That of `jnp.max` does, and is lost or NaN if a compiler computes them anew (`largest`).

    Reformer's programs ask so too: in hashes, which are not differentiated, and in the gradient of
    `jax.nn.softmax`, which does not use the answer. Comparisons with constants are harmless, as
    that with infinity in the gradient of `jax.nn.softplus`.
    """
    q, k, v, g = inputs(case)
    arguments = arrays_of(case), q, k, v, masks(), g, jax.random.key(0)
    program = jax.make_jaxpr(compiled(case))(*arguments)
    compared = [
        equation.invars[0].aval.str_short()
        for equation in equations(program.jaxpr)
        if equation.primitive.name == "eq" and equation.invars[0].aval.dtype == jnp.float32
        if not any(isinstance(variable, Literal) for variable in equation.invars)
    ]
    assert not compared, "use masked_softmax of the contract and models.largest: CONTRIBUTING.md"


@every_case
@pytest.mark.parametrize(
    "dtypes",
    [(jnp.float32, jnp.float32, jnp.bfloat16), (jnp.bfloat16, jnp.float16, jnp.float32)],
    ids=["bfloat16 values", "float32 values"],
)
def test_each_gradient_has_the_format_of_its_input(case, dtypes):
    q, k, v = (x.astype(dtype) for x, dtype in zip(inputs(case)[:3], dtypes, strict=True))
    out, gradients = jax.eval_shape(compiled(case), arrays_of(case), q, k, v, masks(), q, None)
    assert out.dtype == dtypes[0]
    assert tuple(x.dtype for x in gradients[1:]) == dtypes


@every_case
def test_float64_stays_float64_and_float32_agrees(case, float64):
    real = masks()[:, :, None, None]
    out, gradients = run(case, *inputs(case, jnp.float64))
    assert out.dtype == jnp.float64
    assert all(x.dtype == jnp.float64 for x in gradients[1:])
    with jax.enable_x64(False):
        single, _ = run(case, *inputs(case, jnp.float32))
    # Rounding of float32, grown by the pseudo-inverse; a wrong format inside would give 1e-3.
    np.testing.assert_allclose(np.where(real, single, 0), np.where(real, out, 0), atol=2e-5)


@every_case
def test_padding_content_changes_nothing(case):
    real = masks()[:, :, None, None]
    q, k, v, g = inputs(case)
    expected, expected_gradients = run(case, q, k, v, g)
    for filling in (-7.0, 1e4):
        filled = [jnp.where(real, x, filling) for x in (q, k, v)]
        out, gradients = run(case, *filled, g)
        for x, y in zip((out, *gradients[1:]), (expected, *expected_gradients[1:]), strict=True):
            np.testing.assert_allclose(np.where(real, x, 0), np.where(real, y, 0), atol=1e-6)
        for x, y in zip(*map(jax.tree.leaves, (gradients[0], expected_gradients[0])), strict=True):
            if jnp.issubdtype(x.dtype, jnp.floating):
                np.testing.assert_allclose(x, y, atol=1e-5)
        assert_finite((out, gradients))


# Where the length makes windows, segments or chunks, it may be a multiple of them or not, and so
# may shorter ones be.
BY_WINDOWS = ("nystrom", "linformer", "reformer")


def shorter():
    """Case, key, the length it is made for, and a shorter one; those that tell little are slow."""
    for each in (*EVALUATION, *TRAINING):
        case, key = each.values
        if key is not None and not CASES[case].draws:
            continue
        by_windows = attention_of(case) in BY_WINDOWS
        for made_for in (48, 37) if by_windows else (37,):
            # Of 48 positions, 24 are whole windows and 33 are not.
            of_48 = {"nystrom": (33,), "linformer conv": (24,)}
            telling = (7,) if made_for == 37 else of_48.get(case, ())
            if case in LIKE_ANOTHER or (key is None and CASES[case].draws):
                telling = ()  # training does the same, and draws
            for length in (7, 24, 33):
                marks = () if length in telling else pytest.mark.slow
                name = f"{each.id}-{length} of {made_for}"
                yield pytest.param(case, key, made_for, length, id=name, marks=marks)


@functools.cache
def made_for_longer(case, key, made_for):
    """(q, k, v, mask, g) to outputs and gradients at real positions."""
    name, options = attention_of(case), CASES[case].options
    rngs = nnx.Rngs(params=0, attention=1)
    attention = make(name, length=made_for, heads=HEADS, head_dim=HEAD_DIM, rngs=rngs, **options)
    key = None if key is None else jax.random.key(key)

    def results(q, k, v, mask, g):
        out, pull = jax.vjp(lambda *x: attention(*x, mask, key=key), q, k, v)
        real = mask[:, :, None, None]
        return [jnp.where(real, x, 0) for x in (out, *pull(jnp.where(real, g, 0)))]

    return jax.jit(results)


@pytest.mark.parametrize(("case", "key", "made_for", "length"), list(shorter()))
def test_a_shorter_sequence_gives_what_it_gives_padded(case, key, made_for, length, float64):
    results = made_for_longer(case, key, made_for)
    q, k, v, g = map(np.asarray, inputs(case, jnp.float64))
    short = [x[:, :length] for x in (q, k, v, masks(), g)]
    missing = (0, 0), (0, made_for - length), (0, 0), (0, 0)
    padded = [np.pad(x, missing[: x.ndim]) for x in short]
    for x, y in zip(results(*short), map(np.asarray, results(*padded)), strict=True):
        np.testing.assert_allclose(x, y[:, :length], rtol=1e-9, atol=1e-9)
        assert not y[:, length:].any()


@every_case
def test_no_real_token_gives_zero(case):
    row = ROWS["none"]
    for key in (None, jax.random.key(1)):
        out, gradients = run(case, *inputs(case), key=key)
        assert not np.asarray(out)[row].any()
        assert not any(np.asarray(x)[row].any() for x in gradients[1:])


@every_case
def test_a_sequence_does_not_see_the_others_of_its_batch(case):
    order = np.array([3, 0, 4, 2, 1])
    q, k, v, g = inputs(case)
    out, _ = run(case, q, k, v, g)
    shuffled, _ = run(case, q[order], k[order], v[order], g[order], mask=masks()[order])
    np.testing.assert_allclose(shuffled, out[order], atol=1e-6)
    alone, _ = run(case, *(jnp.roll(x, 1, axis=0).at[3].set(x[3]) for x in (q, k, v, g)))
    np.testing.assert_allclose(alone[3], out[3], atol=1e-6)


@every_case
def test_eager_equals_jit(case):
    q, k, v, g = inputs(case)
    key = jax.random.key(2)
    expected, _ = run(case, q, k, v, g, key=key)
    out = build(case)(q, k, v, jnp.asarray(masks()), key=key)
    real = masks()[:, :, None, None]
    np.testing.assert_allclose(np.where(real, out, 0), np.where(real, expected, 0), atol=2e-6)


@every_case
def test_randomness_is_a_function_of_the_key(case):
    q, k, v, g = inputs(case)
    evaluated = [run(case, q, k, v, g)[0] for _ in range(2)]
    np.testing.assert_array_equal(*evaluated)
    trained = [run(case, q, k, v, g, key=jax.random.key(3))[0] for _ in range(2)]
    np.testing.assert_array_equal(*trained)
    other = run(case, q, k, v, g, key=jax.random.key(4))[0]
    assert CASES[case].draws == bool((np.asarray(other) != np.asarray(trained[0])).any())


@every_case
def test_vmap_over_seeds_equals_separate_runs(case):
    seeds = (0, 1)
    q, k, v, g = (jnp.stack(x) for x in zip(*(inputs(case, seed=s) for s in seeds), strict=True))
    keys = jax.random.split(jax.random.key(6), len(seeds))
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *(arrays_of(case, seed) for seed in seeds))
    together = jax.jit(jax.vmap(compiled(case), in_axes=(0, 0, 0, 0, None, 0, 0)))
    mask = jnp.asarray(masks())
    out, gradients = together(stacked, q, k, v, mask, g, keys)
    for i, seed in enumerate(seeds):
        alone, own = run(case, q[i], k[i], v[i], g[i], key=keys[i], seed=seed)
        np.testing.assert_allclose(out[i], alone, atol=2e-6)
        for x, y in zip(gradients[1:], own[1:], strict=True):
            np.testing.assert_allclose(x[i], y, atol=1e-5)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_causal_use_is_refused_with_a_reason(name):
    with pytest.raises(ValueError, match=f"^{name} attention cannot be causal: ") as error:
        make(name, length=16, heads=1, head_dim=8, rngs=nnx.Rngs(0), causal=True)
    assert str(error.value).endswith(ATTENTIONS[name].why_not_causal)
    assert len(ATTENTIONS[name].why_not_causal) > 30


@pytest.mark.parametrize("name", ATTENTIONS)
def test_unknown_options_are_named_with_the_known_ones(name):
    known = sorted(options_of(name))
    wrong = known[0] + "s" if known else "features"
    with pytest.raises(ValueError, match=f"^unknown option of {name} attention ") as error:
        make(name, length=16, heads=1, head_dim=8, rngs=nnx.Rngs(0), **{wrong: 1})
    assert not known or f"did you mean '{known[0]}'?" in str(error.value)
    assert f"(known: {', '.join(known) or 'none'})" in str(error.value)


def test_an_unknown_attention_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown attention 'nystorm'") as error:
        make("nystorm", length=16, heads=1, head_dim=8, rngs=nnx.Rngs(0))
    assert "did you mean 'nystrom'?" in str(error.value)
    assert all(name in str(error.value) for name in ATTENTIONS)


def test_inputs_are_checked():
    """In a process without the checks that the tests add to annotations."""
    code = """if True:
        import jax
        import jax.numpy as jnp
        from flax import nnx
        from models.attention import make
        from tests.attention_cases import SMALL
        def try_wrong_inputs():
            x, mask = jnp.ones((2, 16, 2, 8)), jnp.ones((2, 16), bool)
            wrong = (x, x[:, 1:], x, mask), (x, x, x, mask[:, 1:]), (x, x, x, mask.astype(x.dtype))
            for name, case in SMALL.items():
                sizes = {"length": 16, "heads": 2, "head_dim": 8, **case.options}
                attention = make(name, rngs=nnx.Rngs(params=0, attention=1), **sizes)
                for inputs in wrong:
                    try:
                        attention(*inputs)
                    except ValueError as error:
                        assert "must be" in str(error), error
                    else:
                        print(name, [(x.shape, x.dtype) for x in inputs])
        jax.eval_shape(try_wrong_inputs)  # nothing is compiled
    """
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == ""


def test_other_inputs_than_the_contracts_are_refused():
    x, mask = jnp.ones((2, 5, 2, 3)), jnp.ones((2, 5), bool)
    check_inputs(x, x, x, mask)
    for bad in (
        (x, x[:, 1:], x),
        (x, x, x[..., 1:]),
        (x, x[:, :, :1], x),
        (x[0], x[0], x[0]),
        ([1], [1], x),
    ):
        with pytest.raises(ValueError, match=r"q, k and v must be of one shape"):
            check_inputs(*bad, mask)
    for bad, found in (
        (None, "None"),
        (mask[:, 1:], r"bool \(2, 4\)"),
        (mask.astype(jnp.int32), "int32"),
    ):
        with pytest.raises(ValueError, match=rf"^mask must be .* not {found}"):
            check_inputs(x, x, x, bad)
    for dtype in (jnp.int32, jnp.bool_, jnp.complex64):
        with pytest.raises(
            ValueError, match=f"must be floating-point arrays, not {dtype.__name__}"
        ):
            check_inputs(x, x, x.astype(dtype), mask)


# Without the checks of types that tests have.
_PURE = {
    "standard": (inspect.unwrap(standard_attention), (), {}),
    "nystrom": (inspect.unwrap(nystrom_attention), (), {"num_landmarks": 2}),
    "linformer": (inspect.unwrap(linformer_attention), (jnp.ones((1, 3, 5)),), {}),
    "performer": (inspect.unwrap(performer_attention), (jnp.ones((4, 3)),), {}),
    "reformer": (
        inspect.unwrap(reformer_attention),
        (jnp.ones((2, 3, 1, 2)),),
        {"chunk_length": 2},
    ),
    "longformer": (inspect.unwrap(longformer_attention), (), {"window": 2}),
    "linear": (inspect.unwrap(linear_attention), (), {}),
}


@pytest.mark.parametrize("name", _PURE)
def test_pure_functions_refuse_them_too(name):
    x, mask = jnp.ones((2, 5, 2, 3)), jnp.ones((2, 5), bool)
    attend, more, options = _PURE[name]

    def call(q, k, v, mask):
        arrays = (q, v, mask) if name == "reformer" else (q, k, v, mask)
        return attend(*arrays, *more, **options)

    assert jax.eval_shape(call, x, x, x, mask).shape == x.shape
    for bad, message in (
        ((x, x[:, :3], x[:, :3], mask), "of one shape"),
        ((x, x, x, jnp.where(mask, 0.0, -1e9)), "mask must be bool"),
        ((x.astype(int), x.astype(int), x.astype(int), mask), "floating-point"),
    ):
        with pytest.raises(ValueError, match=message):
            call(*bad)


def test_pure_functions_refuse_options_that_cannot_be():
    x, mask = jnp.ones((2, 5, 2, 3)), jnp.ones((2, 5), bool)
    e, rotations = jnp.ones((1, 3, 5)), jnp.ones((2, 3, 1, 2))
    landmarks = {"num_landmarks": 2, "pinv_iterations": -1}
    for attend, arrays, options, message in (
        (linformer_attention, (x, x, x, mask, e, e[:, :2]), {}, "unequal sizes"),
        (linformer_attention, (x, x, x, mask, e[0]), {}, "e must be .1 or 2 heads, projected"),
        (linformer_attention, (x, x, x, mask, e, jnp.ones((3, 3, 5))), {}, "f must be .1 or 2"),
        (longformer_attention, (x, x, x, mask), {"window": -1}, "window must be 0 or"),
        (performer_attention, (x, x, x, mask, jnp.ones(3)), {}, "projection must be .features, 3"),
        (performer_attention, (x, x, x, mask, jnp.ones((0, 3))), {}, "projection must be"),
        (performer_attention, (x, x, x, mask, jnp.ones((2, 3))), {"epsilon": -1}, "epsilon must"),
        (standard_attention, (x, x, x, mask), {"dropout": 2.0}, "dropout must be a number"),
        (nystrom_attention, (x, x, x, mask), landmarks, "pinv_iterations must be 0 or"),
        (reformer_attention, (x, x, mask, rotations), {"chunk_length": 0}, "chunk_length must"),
        (orthogonal_features, (jax.random.key(0), 3, 0), {}, "head_dim must be a positive"),
    ):
        with pytest.raises(ValueError, match=message):
            inspect.unwrap(attend)(*arrays, **options)


def test_layers_and_shared_modules_are_checked():
    sizes = {"length": 16, "heads": 1, "head_dim": 8, "rngs": nnx.Rngs(0)}
    other = make("linear", **sizes)
    for wrong, message in (
        ({"layer": -1}, "layer must be 0 or a positive integer, not -1"),
        ({"layer": 1, "shared": other}, "shared must be the linformer attention of layer 0, not"),
    ):
        with pytest.raises(ValueError, match=message):
            make("linformer", **sizes, proj_dim=8, **wrong)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_sizes_below_one_are_refused(name):
    sizes = [o for o, default in options_of(name).items() if type(default) is int and default > 0]
    for option in sizes:
        for value in (-1, 0) if option != "conv_kernel" else (-1,):
            with pytest.raises(ValueError, match=option):
                make(name, length=64, heads=1, head_dim=8, rngs=nnx.Rngs(0), **{option: value})
    sizes = {"length": 64, "heads": 1, "head_dim": 8}
    for size in sizes:
        with pytest.raises(ValueError, match=f"{size} must be a positive integer, not 0"):
            make(name, **sizes | {size: 0}, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("linformer", (1, 64, 1, 8), "1 heads, but the attention is made for 2"),
        ("nystrom", (1, 64, 4, 8), "4 heads, but the attention is made for 2"),
        ("performer", (1, 64, 2, 4), "4 numbers per head, but the attention is made for 8"),
        ("reformer", (1, 64, 1, 8), "1 heads, but the attention is made for 2"),
        ("reformer", (1, 64, 2, 16), "16 numbers per head, but the attention is made for 8"),
    ],
)
def test_heads_of_another_module_are_refused(name, shape, message):
    x, mask = jnp.ones(shape), jnp.ones(shape[:2], bool)
    options = {"proj_dim": 16} if name == "linformer" else {}
    attention = make(name, length=64, heads=2, head_dim=8, rngs=nnx.Rngs(0), **options)
    with pytest.raises(ValueError, match=message):
        attention(x, x, x, mask)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linformer", {"proj_dim": 4}),
        ("nystrom", {"num_landmarks": 4}),
        ("reformer", {"chunk_length": 4}),
    ],
)
def test_modules_made_for_a_length_refuse_longer_inputs(name, options):
    attention = make(name, length=8, heads=2, head_dim=8, rngs=nnx.Rngs(0), **options)
    x, mask = jnp.ones((1, 9, 2, 8)), jnp.ones((1, 9), bool)
    with pytest.raises(ValueError, match="9 positions, but the attention is made for 8"):
        attention(x, x, x, mask)


@pytest.mark.parametrize("rngs", [0, None, jax.random.key(0)])
def test_rngs_that_are_none_are_refused(rngs):
    with pytest.raises(ValueError, match="rngs must be an nnx"):
        inspect.unwrap(make)("standard", length=8, heads=1, head_dim=8, rngs=rngs)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_one_stream_of_random_numbers_is_enough(name):
    sizes = {"length": 256, "heads": 1, "head_dim": 8}
    for rngs in (nnx.Rngs(0), nnx.Rngs(params=0)):
        assert make(name, **sizes, rngs=rngs).why_not_causal


def test_untrained_arrays_come_from_the_stream_that_flax_would_take():
    for rngs, same in (
        (nnx.Rngs(params=1, attention=2), nnx.Rngs(attention=2).attention),
        (nnx.Rngs(3, params=1), nnx.Rngs(3).attention),
        (nnx.Rngs(params=1), nnx.Rngs(params=1).params),
    ):
        assert (untrained_key(rngs) == same()).all()
