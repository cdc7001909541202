"""Dropout whose mask is a function of a key: of activations, and which attention weights stay."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from models.keys import draw, of_examples

_LEVELS = 2**16


def dropout(
    x: Float[Array, "*shape"], rate: float, key: jax.Array | None
) -> Float[Array, "*shape"]:
    """Zeroes entries with probability `rate`, scales the others up; without a key the identity."""
    if key is None or rate == 0:
        return x
    return jnp.where(keep_mask(key, x.shape, rate), x / keep_probability(rate), 0)


def check_rate(dropout: object) -> None:
    """Raises ValueError unless 0 <= dropout < 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ValueError(f"dropout must be a number from 0 to less than 1, not {dropout!r}")


def keep_probability(dropout: float) -> float:
    """The probability that `keep_mask` keeps an entry: 1 - dropout, rounded to 1/65,536."""
    return 1 - _threshold(dropout) / _LEVELS


def keep_mask(key: jax.Array, shape: tuple[int, ...], dropout: float) -> Bool[Array, "*shape"]:
    """Draws, independently for each entry, True with `keep_probability(dropout)`.

    With keys [batch] each draws the mask of one example; `shape` begins with the batch then.

    Random bits are half of the cost of attention with dropout. An entry takes 16 of them, and
    `random.split` returns every bit of a hash, of which `random.bits` would return half.
    """
    if of_examples(key):
        if len(key) != shape[0]:
            raise ValueError(f"{len(key)} keys for {shape[0]} examples")
        return draw(lambda one: keep_mask(one, shape[1:], dropout), key)
    *rows, columns = shape
    bits_per_key = 32 * jax.random.key_data(key).shape[-1]
    keys = jax.random.split(key, (*rows, -(-columns * 16 // bits_per_key)))
    words = jax.random.key_data(keys)
    words = [words[..., i] for i in range(words.shape[-1])]
    entries = [entry for word in words for entry in (word & (_LEVELS - 1), word >> 16)]
    return jnp.concatenate(entries, axis=-1)[..., :columns] >= _threshold(dropout)


def _threshold(dropout: float) -> int:
    return min(round(dropout * _LEVELS), _LEVELS - 1)
