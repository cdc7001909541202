"""Nyström's approximation by landmarks and iterations, to the limit of Lemma 2."""

import numpy as np

from lra.analysis.approximation import approximation_rows
from lra.analysis.inputs import random_inputs
from lra.analysis.matrices import exact_matrix, matrix_errors
from lra.analysis.methods import METHODS
from lra.analysis.nystrom import ITERATIONS, iteration_rows, landmarks_of, nystrom_matrix

INPUTS = random_inputs(examples=2, length=16, heads=2, head_dim=8)


def test_landmarks_are_halved_down_from_every_position():
    assert landmarks_of(512) == [32, 64, 128, 256, 512]
    assert landmarks_of(5) == [1, 2, 5]


def test_lemma_2_with_every_position_a_landmark_the_error_tends_to_0(float64):
    q, k, v, mask = INPUTS.layer(0)
    exact = exact_matrix(q, k, mask)

    def largest_error(iterations):
        found = nystrom_matrix(q, k, mask, num_landmarks=16, iterations=iterations)
        errors = matrix_errors(found, exact, v)
        return float(max(errors.matrix.max(), errors.output.max()))

    errors = [largest_error(iterations) for iterations in (2, 6, 12, 30)]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] > 1e-3  # six iterations are not the limit
    assert errors[-1] < 1e-9


def test_lemma_2_with_holes_in_the_mask(float64):
    mask = INPUTS.mask.copy()
    mask[0, [0, 3, 4, 15]] = False
    q, k, v, mask = INPUTS._replace(mask=mask).layer(0)
    found = nystrom_matrix(q, k, mask, num_landmarks=16, iterations=30)
    assert float(matrix_errors(found, exact_matrix(q, k, mask), v).matrix.max()) < 1e-9


def test_rows_have_every_number_of_iterations_and_agree_with_the_curve(float64):
    rows = list(iteration_rows(INPUTS, [4]))
    assert [row["iterations"] for row in rows] == [n for n in ITERATIONS for _ in range(2)]
    (nystrom,) = [method for method in METHODS if method.attention == "nystrom"]
    curve = list(approximation_rows(INPUTS, [nystrom], [4]))
    for name in ("matrix_error", "output_error"):
        six = [row[name] for row in rows if row["iterations"] == 6]
        np.testing.assert_allclose(six, [row[name] for row in curve], rtol=1e-9)
