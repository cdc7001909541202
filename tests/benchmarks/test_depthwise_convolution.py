"""The forms of the convolution are the same function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import depthwise_convolution
from benchmarks.depthwise_convolution import forms


@pytest.mark.parametrize("width", [1, 4, 5])
def test_the_forms_agree(width):
    x = jax.random.normal(jax.random.key(0), (2, 13, 3, 4))
    kernel = jax.random.normal(jax.random.key(1), (3, width))
    ours, *others = [form(x, kernel) for form in forms([8, 16]).values()]
    assert len(others) == 3
    for other in others:
        np.testing.assert_allclose(other, ours, atol=1e-5)


def test_the_block_is_that_asked_for():
    def products(size: int) -> str:
        form = forms([size])[f"blocks of {size}"]
        return str(jax.make_jaxpr(form)(jnp.ones((1, 32, 1, 2)), jnp.ones((1, 3))))

    assert products(8) != products(16)


def test_a_table_is_printed(capsys):
    assert depthwise_convolution.main(["--lengths=32", "--blocks=8", "--runs=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[8:32].strip() for line in lines[2:]] == [
        *("blocks of 8", "lax.conv_general_dilated", "shifted products"),
    ]
    assert lines[2].endswith("1.00")
