"""A section of the report: what stands under one heading, in whatever format."""

from typing import NamedTuple

from lra.report.figures import Figure
from lra.report.tables import Table


class Section(NamedTuple):
    """A title, tables and figures, and what must be known to read all of the tables."""

    title: str
    tables: list[Table]
    figures: list[Figure]
    legend: str = ""

    @property
    def around_figures(self) -> tuple[list[Table], list[Table]]:
        """The tables before and behind the figures: behind are folded ones, or all but one."""
        folded = [table for table in self.tables if table.folded]
        if folded:
            return [table for table in self.tables if not table.folded], folded
        return self.tables[:1], self.tables[1:]
