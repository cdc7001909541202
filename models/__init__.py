"""Flax modules, independent of the tasks: attentions, their common encoder, and classifiers."""
