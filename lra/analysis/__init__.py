"""How well attentions approximate exact attention, on q, k and v of trained models."""
