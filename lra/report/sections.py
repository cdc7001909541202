"""A section of a report: everything under one heading, in any format."""

from typing import NamedTuple

from lra.report.figures import Figure
from lra.report.tables import Table


class Section(NamedTuple):
    """A title, tables, figures, and a legend: a paragraph that explains all the tables."""

    title: str
    tables: list[Table]
    figures: list[Figure]
    legend: str = ""

    @property
    def around_figures(self) -> tuple[list[Table], list[Table]]:
        """Tables before and after the figures: folded ones go after, else all but the first."""
        folded = [table for table in self.tables if table.folded]
        if folded:
            return [table for table in self.tables if not table.folded], folded
        return self.tables[:1], self.tables[1:]
