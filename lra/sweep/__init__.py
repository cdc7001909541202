"""Run many trainings, each as a `train.py` subprocess, and collect their rows. Imports no JAX."""
