"""What is in a program of JAX."""

from collections.abc import Iterator

from jax.extend import core


def equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """Those of a program and of all programs in it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in core.jaxprs_in_params(equation.params):
            yield from equations(inner)
