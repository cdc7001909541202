"""Which parameters of a test are in the quick suite."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those of `quick` in every suite, the other values in the slow one.

    A tuple holds the values of several arguments.
    """
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in quick else pytest.mark.slow,
        )
        for value in values
    ]
