"""PRNG keys of a batch: one for the whole batch, or one per example.

With a key per example, its random numbers (dropout masks, hash rotations) depend neither on the
rest of the batch nor on whether the batch is computed whole or in parts. This holds for keys of
JAX's default implementation, threefry2x32; those of `rbg` draw other numbers under `jax.vmap`.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

T = TypeVar("T")


def one_per_example(key: Array) -> bool:
    """Whether `key` holds keys [batch] rather than one (from `jax.random.key` or `PRNGKey`).

    Raises:
        ValueError: `key` is no array.
    """
    if not hasattr(key, "ndim"):
        raise ValueError(f"key must be one of jax.random.key, not {key!r}")
    return key.ndim > (0 if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else 1)


def draw(function: Callable[[Array], T], key: Array) -> T:
    """Return `function(key)`, or for keys [batch] the results stacked along a new first axis."""
    return jax.vmap(function)(key) if one_per_example(key) else function(key)


def split(key: Array | None, number: int) -> tuple[Array | None, ...]:
    """Split `key` into `number` independent keys, each [batch] if `key` is; None into Nones."""
    if key is None:
        return (None,) * number
    return draw(lambda k: tuple(jax.random.split(k, number)), key)
