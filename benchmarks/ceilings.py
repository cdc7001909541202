"""Measured peak rates of the device: a large matrix product and a large copy."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

# The fastest of many short runs counts: even on a busy machine, at least one is undisturbed.
_RUNS = 20
# Side of the matrix, and bytes of the copied array (more than any cache holds), by backend.
_SIZES = {"cpu": (1024, 2**27)}
_ACCELERATOR_SIZES = (8192, 2**30)


def measure(dtype: str) -> dict[str, float]:
    """Measure `flops_per_second` of a product and `bytes_per_second` of a copy (read + written)."""
    return {"flops_per_second": product_rate(dtype), "bytes_per_second": _copy_rate(dtype)}


def product_rate(dtype: str) -> float:
    """Measure FLOP/s of a large matrix product in JAX's default matmul precision."""
    side, _ = _SIZES.get(jax.default_backend(), _ACCELERATOR_SIZES)
    a = jax.random.normal(jax.random.key(0), (side, side), jnp.dtype(dtype))
    product = jax.jit(lambda a: a @ a)
    return 2 * side**3 / _fastest(lambda _: product(a), a)


def _copy_rate(dtype: str) -> float:
    """Measure bytes per second of a large copy, counting both reads and writes."""
    _, size = _SIZES.get(jax.default_backend(), _ACCELERATOR_SIZES)
    x = jnp.ones(size // jnp.dtype(dtype).itemsize, jnp.dtype(dtype))
    # Negated, as XLA would elide a plain copy; donated, as mapping new pages would take time too.
    return 2 * size / _fastest(jax.jit(lambda x: -x, donate_argnums=0), x)


def _fastest(function: Callable, argument: jax.Array) -> float:
    """Return seconds of the fastest call; each call takes the result of the previous one."""
    argument = jax.block_until_ready(function(argument))
    seconds = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        argument = jax.block_until_ready(function(argument))
        seconds.append(time.perf_counter() - start)
    return min(seconds)
