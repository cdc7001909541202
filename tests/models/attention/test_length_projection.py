"""The product along the length by blocks, as on CPUs, against the whole one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention import length_projection


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("formats", "tolerance"),
    [(("float64", "float64"), 1e-12), (("float64", "float32"), 1e-5), (("float32", "bfloat16"), 0)],
)
@pytest.mark.parametrize("length", [5, 8, 16, 21])
@pytest.mark.parametrize("copies", [1, 2])
def test_the_product_by_blocks_equals_the_whole_one(
    monkeypatch, length, copies, formats, tolerance
):
    monkeypatch.setattr(length_projection, "_POSITIONS", 8)
    keys = jax.random.split(jax.random.key(0), 3)
    # Small integers: products and sums of bfloat16 are exact, whatever their order.
    matrix, x, g = (
        jnp.round(2 * jax.random.normal(key, shape)).astype(dtype)
        for key, shape, dtype in (
            (keys[0], (copies, 3, length), formats[0]),
            (keys[1], (2, length, copies, 4), formats[1]),
            (keys[2], (2, 3, copies, 4), formats[1]),
        )
    )
    results = [
        jax.tree.leaves((out, pull(g)))
        for out, pull in (
            jax.vjp(product, matrix, x)
            for product in (length_projection._product, length_projection._whole_product)
        )
    ]
    for one, other, dtype in zip(*results, (x.dtype, matrix.dtype, x.dtype), strict=True):
        assert one.dtype == other.dtype == dtype
        np.testing.assert_allclose(one.astype(float), other.astype(float), atol=tolerance)
