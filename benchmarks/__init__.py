"""Questions about cost, not accuracy. Each script's docstring names its question and command."""
