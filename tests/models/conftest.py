"""Numbers of different formats may meet only where a model says so."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield
