"""Costs: rows of `lra.efficiency` as tables and figures."""
