"""Benchmarks of cost, not accuracy. Each script's docstring states its question and command."""
