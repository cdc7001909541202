"""Benchmarks of cost, not accuracy. Each script's docstring states its question and command."""

from lra import installation

# Scripts import these before they parse their flags.
installation.check(("flax", "jax", "jaxtyping", "optax", "orbax"))
