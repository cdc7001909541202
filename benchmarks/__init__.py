"""Benchmarks of cost, not accuracy. Each script's docstring states its question and command."""

from lra import installation

PACKAGES = ("flax", "jax", "jaxtyping", "optax", "orbax")  # imported before flags are parsed

installation.check(PACKAGES)
