"""Test of Linformer's Theorem 1 (arXiv 2006.04768): whether P R^T R w approximates P w.

R is k x n with entries N(0, 1/k), P an attention matrix, w a column of its values, and
k >= 5 log(n) / (eps^2 - eps^3) (Appendix A). Two statements are checked:

- `printed`: |P R^T R w - P w| <= eps |P w|, as the theorem states. Its proof takes from the
  Johnson-Lindenstrauss lemma that |u R^T R w - u w| <= eps |u w| for each row u of P.
- `proven`: |u R^T R w - u w| <= eps |u| |w| for every row u. This is what the lemma gives
  (Arriaga and Vempala 2006: its error is relative to the product of the norms). It fails for any of
  the n rows with probability at most 4 n e^(-(eps^2 - eps^3) k / 4), which is 4 n^(-1/4) for the
  smallest k above. (The paper has 2 n instead of 4 n; the lemma is applied to u + w and u - w, with
  two tails each.)

The two differ by |u| |w| / |u w|, which is large where a row averages over many values that
cancel: then the statement as printed needs k of the order of n, not of log n.

Theorem 2, of softmax(q E^T) F v, is not checked: the projections of its proof are E = d R and
F = exp(-d) R with d = 2^-n, so small that all weights are equal in any number format.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from lra.analysis.inputs import Inputs
from lra.analysis.matrices import exact_matrix

EPSILONS = (0.2, 0.3, 0.4, 0.5, 0.6)
DRAWS = 50


def projected_rank(length: int, epsilon: float) -> int:
    """Return k = 5 log(n) / (eps^2 - eps^3), rounded up. If above n, it bounds no rank."""
    return math.ceil(5 * math.log(length) / (epsilon**2 - epsilon**3))


def failure_bound(length: int, rank: int, epsilon: float) -> float:
    """Return an upper bound on the probability that some row of P fails `proven`."""
    return min(1.0, 4 * length * math.exp(-(epsilon**2 - epsilon**3) * rank / 4))


def random_projection(
    p: Float[np.ndarray, "heads rows length"],
    w: Float[np.ndarray, "heads length columns"],
    rank: int,
    *,
    draws: int = DRAWS,
) -> tuple[Float[np.ndarray, "draws heads columns"], Float[np.ndarray, "draws heads columns"]]:
    """Return relative errors of P R^T R w over `draws` of R, for each column w of each head.

    Returns:
        printed: Error of the whole column.
        proven: Largest error over the rows of P.
    """
    rng = np.random.default_rng([0, rank])
    exact = p @ w
    exact_norm = np.linalg.norm(exact, axis=1)
    scale = np.linalg.norm(p, axis=2)[:, :, None] * np.linalg.norm(w, axis=1)[:, None, :]
    printed, proven = [], []
    for _ in range(draws):
        r = rng.standard_normal((rank, p.shape[2])) / math.sqrt(rank)
        error = p @ (r.T @ (r @ w)) - exact
        printed.append(np.linalg.norm(error, axis=1) / exact_norm)
        proven.append(np.max(np.abs(error) / scale, axis=1))
    return np.stack(printed), np.stack(proven)


def theorem_rows(inputs: Inputs, *, draws: int = DRAWS) -> Iterator[dict[str, Any]]:
    """Yield a row per layer, epsilon and head, over the value columns of one example.

    The example is the first of those with the fewest masked positions; at least two of its
    positions must be real.

    `failures` is the share of draws and columns whose error exceeds epsilon; `errors` are the 5th,
    50th and 95th percentiles of the errors, and the largest.
    """
    example = int(np.argmax(np.sum(inputs.mask, axis=1)))
    real = inputs.mask[example]
    length = int(np.sum(real))
    for layer in range(inputs.layers):
        q, k, v, mask = (x[example : example + 1] for x in inputs.layer(layer))
        # Drop the rows and columns of masked positions, which are 0.
        p = np.asarray(exact_matrix(q, k, mask))[0][:, real][:, :, real]
        w = np.swapaxes(np.asarray(v[0]), 0, 1)[:, real]
        for epsilon in EPSILONS:
            rank = projected_rank(length, epsilon)
            all_printed, all_proven = random_projection(p, w, rank, draws=draws)
            for head in range(len(p)):
                printed, proven = all_printed[:, head], all_proven[:, head]
                yield {
                    "kind": "theorem1",
                    "data": inputs.data,
                    "layer": layer,
                    "head": head,
                    "epsilon": epsilon,
                    "rank": rank,
                    "length": length,
                    "draws": draws,
                    "failure_bound": failure_bound(length, rank, epsilon),
                    "printed_failures": float(np.mean(printed > epsilon)),
                    "proven_failures": float(np.mean(proven > epsilon)),
                    "printed_errors": _percentiles(printed),
                    "proven_errors": _percentiles(proven),
                }


def _percentiles(errors: np.ndarray) -> list[float]:
    return [float(x) for x in np.percentile(errors, (5, 50, 95, 100))]
