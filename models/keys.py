"""PRNG keys of a batch: one for all of it, or one for each example.

With a key of its own, what an example draws (dropout masks, hash rotations) depends neither on the
rest of its batch nor on whether the batch is taken whole or in parts.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

T = TypeVar("T")


def one_per_example(key: Array) -> bool:
    """Whether these are keys [batch] rather than a single one (`jax.random.key` or `PRNGKey`)."""
    return key.ndim > (0 if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else 1)


def draw(function: Callable[[Array], T], key: Array) -> T:
    """`function(key)`; of keys [batch] the results for each, along a new first axis."""
    return jax.vmap(function)(key) if one_per_example(key) else function(key)


def split(key: Array | None, number: int) -> tuple[Array | None, ...]:
    """Splits into `number` independent keys, each [batch] if `key` is; of None, as many None."""
    if key is None:
        return (None,) * number
    return draw(lambda one: tuple(jax.random.split(one, number)), key)
