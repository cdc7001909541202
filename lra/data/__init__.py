"""The data sets: raw files or a seed in, prepared arrays on disk out. No JAX."""
