"""Checks of options."""

import numpy as np
import pytest

from models.checks import check_choices, check_fraction, check_positive


def test_integers_of_numpy_are_integers():
    check_positive(size=np.int64(3))
    with pytest.raises(ValueError, match="size must be a positive integer, not"):
        check_positive(size=np.float32(3))


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, True, "0.1", None, float("nan")])
def test_what_is_no_fraction_is_refused(value):
    with pytest.raises(ValueError, match=r"^rate must be a number from 0 to less than 1, not "):
        check_fraction(rate=value)
    check_fraction(zero=0, half=0.5)


def test_what_is_no_collection_of_names_is_refused():
    message = "share must be a collection of names .known: heads, kv, layers., not 5"
    with pytest.raises(ValueError, match=message):
        check_choices("share", 5, ("kv", "heads", "layers"))
