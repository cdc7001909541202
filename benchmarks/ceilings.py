"""What the device can do at most: a large matrix product and a large copy, measured."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

# The fastest of many short runs counts: on a busy machine at least one is undisturbed.
_RUNS = 20
# Side of the matrix, and bytes of the array, which is larger than every cache.
_SIZES = {"cpu": (1024, 2**27)}
_ACCELERATOR = (8192, 2**30)


def measure(dtype: str) -> dict[str, float]:
    """`flops_per_second` of a product and `bytes_per_second` of a copy, read and written."""
    return {"flops_per_second": product_rate(dtype), "bytes_per_second": _copy_rate(dtype)}


def product_rate(dtype: str) -> float:
    """Operations a second of a large matrix product, in the default precision of products."""
    side, _ = _SIZES.get(jax.default_backend(), _ACCELERATOR)
    a = jax.random.normal(jax.random.key(0), (side, side), jnp.dtype(dtype))
    product = jax.jit(lambda a: a @ a)
    return 2 * side**3 / _fastest(lambda _: product(a), a)


def _copy_rate(dtype: str) -> float:
    """Bytes a second of a large copy, read and written."""
    _, size = _SIZES.get(jax.default_backend(), _ACCELERATOR)
    x = jnp.ones(size // jnp.dtype(dtype).itemsize, jnp.dtype(dtype))
    # XLA would leave out a plain copy. The array is donated, since new pages would cost time too.
    return 2 * size / _fastest(jax.jit(lambda x: -x, donate_argnums=0), x)


def _fastest(function: Callable, argument: jax.Array) -> float:
    """Seconds of the fastest call, each on the result of the one before."""
    argument = jax.block_until_ready(function(argument))
    seconds = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        argument = jax.block_until_ready(function(argument))
        seconds.append(time.perf_counter() - start)
    return min(seconds)
