"""A section of a report: everything under one heading, in any format."""

from typing import NamedTuple

from lra.report.figure_files import Figure
from lra.report.figures import NO_SPEED_FIGURE
from lra.report.table import Table


class Section(NamedTuple):
    """A title, tables, figures, and a legend: a paragraph that explains all the tables."""

    title: str
    tables: list[Table]
    figures: list[Figure]
    legend: str = ""

    def without_figures(self) -> "Section":
        """Return the section without its figures, and without the legend of missing ones."""
        legend = "" if self.legend == NO_SPEED_FIGURE else self.legend
        return self._replace(figures=[], legend=legend)

    @property
    def around_figures(self) -> tuple[list[Table], list[Table]]:
        """Tables before and after the figures: folded ones go after, else all but the first."""
        folded = [table for table in self.tables if table.folded]
        if folded:
            return [table for table in self.tables if not table.folded], folded
        return self.tables[:1], self.tables[1:]
