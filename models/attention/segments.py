"""Reductions over segments of consecutive positions: Nyström's landmarks, Linformer's pooling.

A length n is split into m segments as by `numpy.array_split`: the first n mod m have one position
more than the others. Positions are only sliced and reshaped, nothing is gathered or scattered:
gradients are slices too, deterministic and fast on every backend.

Time and memory O(n).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from models.attention.contract import Heads, Mask
from models.attention.padding import zeroed
from models.checks import check_positive
from models.dtypes import accumulation_dtype
from models.largest import largest


def check_segments(num_segments: int, length: int, name: str = "num_segments") -> None:
    """Raise ValueError, naming option `name`, unless there are 1 to `length` segments."""
    check_positive(**{name: num_segments})
    if num_segments > length:
        raise ValueError(
            f"{name} = {num_segments} exceeds the length {length}; choose at most the length"
        )


def segment_reduce(
    x: Shaped[Array, "batch length *features"],
    num_segments: int,
    reduce: Callable[..., jax.Array],
) -> Shaped[Array, "batch segments *features"]:
    """Reduce each segment of the length.

    Args:
        x: Array to reduce.
        num_segments: Number of segments, 1 to length.
        reduce: Reduction such as `jnp.sum` or `jnp.any`, called with an array and `axis=2`.
    """
    batch, length, *rest = x.shape
    check_segments(num_segments, length)
    size, num_longer = divmod(length, num_segments)
    middle = num_longer * (size + 1)
    reduced = []
    if num_longer:
        longer = jax.lax.slice_in_dim(x, 0, middle, axis=1)
        reduced.append(reduce(longer.reshape(batch, num_longer, size + 1, *rest), axis=2))
    shorter = jax.lax.slice_in_dim(x, middle, length, axis=1)
    reduced.append(reduce(shorter.reshape(batch, num_segments - num_longer, size, *rest), axis=2))
    return jnp.concatenate(reduced, axis=1)


def segment_any(mask: Mask, num_segments: int) -> Bool[Array, "batch segments"]:
    """Return whether each segment has a real token."""
    return segment_reduce(mask, num_segments, jnp.any)


def segment_means(
    x: Heads, mask: Mask, num_landmarks: int
) -> Float[Array, "batch num_landmarks heads head_dim"]:
    """Return the mean of each segment's real tokens, 0 without any; sums are at least float32."""
    dtype = accumulation_dtype(x.dtype)
    real = zeroed(x, mask).astype(dtype)
    total = segment_reduce(real, num_landmarks, jnp.sum)
    count = segment_reduce(mask.astype(dtype), num_landmarks, jnp.sum)
    return (total / jnp.maximum(count, 1)[:, :, None, None]).astype(x.dtype)


def segment_max(
    x: Heads, mask: Mask, num_segments: int
) -> Float[Array, "batch num_segments heads head_dim"]:
    """Return the maximum of each feature over each segment's real tokens, 0 without any."""
    lowest = jnp.finfo(x.dtype).min
    peak = segment_reduce(jnp.where(mask[:, :, None, None], x, lowest), num_segments, largest)
    return jnp.where(segment_any(mask, num_segments)[:, :, None, None], peak, 0)
