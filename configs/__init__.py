"""Plain values: `default.py` holds every key, one file per task what that task changes."""
