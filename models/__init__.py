"""Flax modules: the attentions, the encoder they share, and its heads. Knows nothing of tasks."""
