"""Configs: `default.py` has every key, and one file per task has what that task changes."""
