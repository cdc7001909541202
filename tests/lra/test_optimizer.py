"""The one-cycle schedule's corners; against PyTorch's numbers see test_reference_training."""

import numpy as np

from lra.optimizer import beta1, learning_rate, one_cycle
from lra.settings import load_config


def test_listops_schedule_has_the_published_corners():
    train = load_config("configs/listops.py").train
    rate, momentum = learning_rate(train), beta1(train)
    np.testing.assert_allclose(rate(0), 4e-6, rtol=1e-5)
    np.testing.assert_allclose(rate(999), 1e-4, rtol=1e-5)
    np.testing.assert_allclose(rate(4_999), 4e-10, rtol=0.1)
    np.testing.assert_allclose(
        [momentum(s) for s in (0, 999, 4_999)], [0.95, 0.85, 0.95], rtol=1e-5
    )


def test_a_schedule_without_warmup_starts_at_its_peak():
    schedule = one_cycle(0.0, 1.0, 0.0, warmup=0, steps=5)
    np.testing.assert_allclose([schedule(s) for s in range(5)], [1, 0.75, 0.5, 0.25, 0])
