"""Every attention at sizes for short sequences: what the tests of all attentions go through.

A new attention needs one row here, under its own name; further rows, whose names begin with that
one, try other options of it.
"""

from typing import Any, NamedTuple


class Case(NamedTuple):
    """One attention with some options.

    Attributes:
        options: those whose defaults do not fit sequences of 14 to 37 positions, or to be tried.
        draws: whether it uses its key in training.
        linear_memory: whether its memory grows with the length; False: with its square.
    """

    options: dict[str, Any]
    draws: bool = False
    linear_memory: bool = True


CASES = {
    "standard": Case({}, draws=True),
    "standard xla": Case(
        {"dropout": 0.3, "implementation": "xla"}, draws=True, linear_memory=False
    ),
    "standard chunked": Case({"dropout": 0.3, "implementation": "chunked"}, draws=True),
    "nystrom": Case({"num_landmarks": 4, "conv_kernel": 3}),
    "linformer": Case({"proj_dim": 8}),
    "linformer conv": Case({"proj_dim": 8, "projection": "conv"}),
    "linformer pooled": Case({"proj_dim": 8, "projection": "max_pool"}),
    "performer": Case({"num_features": 8}),
    "performer unbiased": Case({"num_features": 16, "epsilon": 0.0}),
    "performer relu": Case({"num_features": 8, "kernel": "relu"}),
    "reformer": Case({"chunk_length": 4}, draws=True),
    "longformer": Case({"window": 3}),
    "linear": Case({}),
}

# Of each attention the row under its own name.
SMALL = {name: case for name, case in CASES.items() if " " not in name}


def attention_of(case: str) -> str:
    """The attention of a row of `CASES`."""
    return case.partition(" ")[0]


def overrides_of(attention: str) -> tuple[str, ...]:
    """The options of `SMALL` as overrides of a configuration."""
    return tuple(
        f"model.attention.{key}={value}" for key, value in SMALL[attention].options.items()
    )
