"""Runs lists of trainings, each as a child `train.py`, and gathers their rows. Imports no JAX."""
