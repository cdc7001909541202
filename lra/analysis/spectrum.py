"""The spectrum of attention matrices (arXiv 2006.04768, Figure 1)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from lra.analysis.inputs import Inputs
from lra.analysis.matrices import exact_matrix

PAPER_RANK = 128  # at 512 positions


def cumulative(
    singular: Float[np.ndarray, "*batch length"],
) -> Float[np.ndarray, "*batch length"]:
    """Return the share of the first i singular values in the sum of all, i from 1."""
    sums = np.cumsum(singular, axis=-1)
    return sums / np.where(sums[..., -1:] > 0, sums[..., -1:], 1)


def of_real(shares: np.ndarray, real: int) -> np.ndarray:
    """Resample cumulative shares [..., length] of which only the first `real` ranks count.

    Masked positions add only singular values of 0, which would make a matrix look low-rank. So
    index i gets the share of the first fraction i / length of the `real` singular values.
    """
    length = shares.shape[-1]
    index = np.arange(1, length + 1) * real / length
    known = np.concatenate([np.zeros_like(shares[..., :1]), shares[..., :real]], axis=-1)
    return np.apply_along_axis(lambda x: np.interp(index, np.arange(real + 1), x), -1, known)


def spectrum_rank(length: int) -> int:
    """Return the rank at which shares are reported: a quarter of the length, as in the paper."""
    return max(1, round(length / 4))


def spectrum_rows(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Yield a row per layer and head: means over the examples, with the ranks of `of_real`.

    `cumulative` has the share at each rank, `at_quarter` the share at a quarter of the length, and
    `at_128` that at rank 128 (None for shorter sequences). `rank_of_90_percent` is the lowest rank
    that holds 90 % of the sum.
    """
    for layer in range(inputs.layers):
        q, k, _, mask = inputs.layer(layer)
        singular = np.linalg.svd(np.asarray(exact_matrix(q, k, mask)), compute_uv=False)
        pairs = zip(cumulative(singular), np.sum(inputs.mask, axis=1), strict=True)
        all_shares = np.stack([of_real(shares, int(real)) for shares, real in pairs])
        for head, shares in enumerate(np.mean(all_shares, axis=0)):
            yield {
                "kind": "spectrum",
                "data": inputs.data,
                "layer": layer,
                "head": head,
                "length": inputs.length,
                "at_quarter": float(shares[spectrum_rank(inputs.length) - 1]),
                "at_128": float(shares[PAPER_RANK - 1]) if inputs.length >= PAPER_RANK else None,
                "rank_of_90_percent": int(np.searchsorted(shares, 0.9) + 1),
                "cumulative": [round(float(share), 6) for share in shares],
            }
