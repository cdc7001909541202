"""Arrays that loops hold, read and write block by block."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention.blocks import (
    add_to_block,
    read_block,
    restored,
    stored,
    tile_bytes,
    used_blocks,
    write_block,
)
from models.machine import Machine, assumed, whole_sequences

FORMATS = [jnp.bfloat16, jnp.float16, jnp.float32]


@pytest.mark.parametrize(
    ("backend", "memory", "expected"),
    [("cpu", None, 2**18), ("gpu", None, 2**28), ("gpu", 2**33, 2**28), ("tpu", 2**37, 2**31)],
)
def test_tiles_grow_with_the_memory_of_an_accelerator(backend, memory, expected):
    assert tile_bytes(Machine(backend, memory)) == expected


@pytest.mark.parametrize("dtype", FORMATS)
def test_storing_changes_no_bit(dtype):
    x = jnp.array([0.0, -0.0, 1.5, -3e-40, jnp.inf, -jnp.inf, jnp.nan], dtype)
    np.testing.assert_array_equal(
        np.asarray(restored(stored(x))).view(np.uint8), np.asarray(x).view(np.uint8)
    )


def test_only_narrow_floats_on_a_cpu_are_stored_as_bits(monkeypatch):
    narrow, wide = jnp.ones(3, jnp.bfloat16), jnp.ones(3)
    assert stored(wide) is wide
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert stored(narrow) is narrow


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere nothing is stored as bits")
def test_bits_have_no_gradient():
    x = jnp.ones(3, jnp.bfloat16)
    with pytest.raises(TypeError, match="write the gradient out"):
        jax.grad(lambda x: jnp.sum(restored(stored(x))))(x)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_loop_reads_writes_and_adds_blocks(dtype):
    x = jnp.arange(24, dtype=dtype).reshape(1, 12, 2)

    @jax.jit
    def run(x):
        source = stored(x)

        def step(number, done):
            copy, sums = done
            block = read_block(source, number, 4, axis=1)
            assert block.dtype == dtype
            # Results of sums come in float32 and are rounded to the array's format.
            wide = block.astype(jnp.float32) + 2.0**-20
            return write_block(copy, wide, number, 1), add_to_block(sums, wide, number // 2, 1)

        start = stored(jnp.zeros_like(x)), stored(jnp.zeros_like(x))
        return [restored(y) for y in jax.lax.fori_loop(0, 3, step, start)]

    copy, sums = run(x)
    assert copy.dtype == sums.dtype == dtype
    blocks = np.asarray(x, np.float32).reshape(3, 4, 2)
    expected = np.stack([blocks[0] + blocks[1], blocks[2], 0 * blocks[2]]).reshape(1, 12, 2)
    np.testing.assert_allclose(np.asarray(copy, np.float32), np.asarray(x, np.float32), atol=1e-5)
    np.testing.assert_allclose(np.asarray(sums, np.float32), expected, atol=1e-5)


def test_what_is_added_is_rounded_once():
    start = stored(jnp.ones((1, 1, 1), jnp.bfloat16))
    # Rounded by itself it is 2^-8, half a unit of 1, which would be rounded down.
    share = jnp.full((1, 1, 1), 2.0**-8 + 2.0**-17)
    assert restored(add_to_block(start, share, jnp.array(0), axis=1)) == 1 + 2.0**-7


@pytest.mark.parametrize(
    ("real", "expected"), [([], 0), ([0], 1), ([7], 1), ([8], 2), ([3, 20], 3), ([23], 3)]
)
def test_blocks_are_used_up_to_the_last_real_position_of_any_example(real, expected):
    mask = jnp.zeros((2, 24), bool).at[1, jnp.array(real, int)].set(True)
    with assumed(Machine("cpu")):
        assert used_blocks(mask, 8) == expected
        with whole_sequences():
            assert used_blocks(mask, 8) == 3
    with assumed(Machine("gpu")):
        assert used_blocks(mask, 8) == 3


def test_mapped_examples_use_one_number_of_blocks():
    masks = jnp.arange(24)[None, None] < jnp.array([[1, 9], [0, 3]])[..., None]
    with assumed(Machine("cpu")):
        count = jax.jit(jax.vmap(lambda mask: used_blocks(mask, 8), out_axes=None))
        assert count(masks) == 2
        both = jax.vmap(jax.vmap(lambda mask: used_blocks(mask, 8), out_axes=None), out_axes=None)
        assert both(masks[:, :, None]) == 2
