"""Nyström's approximation by iterations of its pseudo-inverse, and Lemma 2.

Lemma 2 of arXiv 2102.03902: the approximation becomes exact attention once every query and every
key is a landmark. With as many landmarks as positions the three factors are one matrix P, and
P Z P = P as Z tends to P's pseudo-inverse.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from lra.analysis.inputs import Inputs
from lra.analysis.matrices import Errors, exact_matrix, matrix_errors
from models.attention.nystrom import PINV_ITERATIONS, nystrom_factors

# The third-order convergence starts late: a singular value s of the landmarks' matrix A is
# inverted after about log(|A|^2 / s^2) / log(13/4) steps.
ITERATIONS = (1, 2, 4, 6, 8, 12, 16, 32)


def landmarks_of(length: int) -> list[int]:
    """Return numbers of landmarks from a sixteenth to all of the positions, doubling."""
    return sorted({max(1, length // 2**i) for i in range(5)})


@functools.partial(jax.jit, static_argnames=("num_landmarks", "iterations"))
def nystrom_matrix(
    q: Array, k: Array, mask: Array, *, num_landmarks: int, iterations: int = PINV_ITERATIONS
) -> Array:
    """Return F Z B, [batch, heads, length, length]; rows of masked queries are 0."""
    f, z, b = nystrom_factors(q, k, mask, num_landmarks=num_landmarks, pinv_iterations=iterations)
    return jnp.where(mask[:, None, :, None], f @ z @ b, 0)


@functools.partial(jax.jit, static_argnames="num_landmarks")
def errors_by_iterations(
    q: Array, k: Array, v: Array, mask: Array, *, num_landmarks: int
) -> list[Errors]:
    """Return the errors after each of `ITERATIONS`, from one program that shares common work."""
    exact = exact_matrix(q, k, mask)
    matrix = functools.partial(nystrom_matrix, q, k, mask, num_landmarks=num_landmarks)
    return [matrix_errors(matrix(iterations=number), exact, v) for number in ITERATIONS]


def iteration_rows(inputs: Inputs, landmarks: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield a row per layer, number of landmarks, number of iterations, and head."""
    for layer in range(inputs.layers):
        q, k, v, mask = inputs.layer(layer)
        for size in landmarks:
            all_errors = errors_by_iterations(q, k, v, mask, num_landmarks=size)
            for iterations, errors in zip(ITERATIONS, all_errors, strict=True):
                for head in range(q.shape[2]):
                    yield {
                        "kind": "iterations",
                        "data": inputs.data,
                        "layer": layer,
                        "head": head,
                        "landmarks": size,
                        "length": inputs.length,
                        "iterations": iterations,
                        "matrix_error": float(np.mean(errors.matrix[:, head])),
                        "output_error": float(np.mean(errors.output[:, head])),
                    }
