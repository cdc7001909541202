"""Promotion of dtypes, even where the caller has forbidden implicit promotion."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


def common_dtype(*dtypes: DTypeLike) -> jnp.dtype:
    """Return the dtype that all of these promote to; they are mixed on purpose."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*dtypes)


def accumulation_dtype(dtype: DTypeLike) -> jnp.dtype:
    """Return the dtype of softmaxes and sums for inputs of `dtype`: at least float32."""
    return common_dtype(dtype, jnp.float32)


def least_denominator(dtype: DTypeLike) -> float:
    """Return the smallest denominator for which the gradients divided by it are finite."""
    return float(jnp.finfo(dtype).tiny) * 2.0**24
