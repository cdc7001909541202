"""Prepare the data sets: from raw files or a seed to arrays on disk. Imports no JAX."""
