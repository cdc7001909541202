"""Renders rows: accuracies beside published ones, costs, curves.

    python -m lra.report results/accuracy.jsonl                     tables, to the terminal
    python -m lra.report results/efficiency.jsonl                   costs, to the terminal
    python -m lra.report runs/table.jsonl --out=runs/table          RESULTS.md and figures/
    python -m lra.report ROWS.jsonl --format=md,csv,latex,html --out=DIR --curves runs/table/*
    python -m lra.report ROWS.jsonl --speeds=train_step.jsonl --out=DIR

Files may hold rows of accuracy, of cost, or both. Only rows of the protocol `table3` fill the table
of the paper; all others have tables of their own. Costs have a section for each device, number of
threads, width and number format; times are compared within one run only. As CSV
accuracies are results.csv, costs of their programs costs.csv (only with --out), other costs
efficiency.csv. Accuracy is drawn against the speeds of the runs themselves; what
benchmarks.train_step measured one by one compares attentions better: give its rows as --speeds.
"""

import argparse
import dataclasses
import functools
import gc
import pathlib

from lra.command_line import ArgumentParser, folder, near_match, run
from lra.errors import UserError
from lra.files import write_atomically
from lra.report import formats, speeds
from lra.report.accuracy_csv import accuracy_csv, costs_csv
from lra.report.costs import sections as cost_sections
from lra.report.costs.sheets import Setting, Sheet, sheets
from lra.report.figures import NO_SPEED_FIGURE, Figure, beyond_speed_figures, figures, save
from lra.report.groups import Group, group
from lra.report.notes import summary
from lra.report.page import page
from lra.report.reading import read
from lra.report.sections import Section
from lra.report.tables import tables

_FILES = {"md": "RESULTS.md", "csv": "results.csv", "latex": "results.tex", "html": "results.html"}
# Costs of programs, and cells of cost, have other columns than cells of accuracy.
_CSV_OF_PROGRAMS, _CSV_OF_COSTS = "costs.csv", "efficiency.csv"


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that is rendered: groups of accuracies, figures, costs, and the source files."""

    groups: list[Group]
    figures: list[list[Figure]]  # of each group
    curves: list[Figure]
    costs: dict[Setting, list[Sheet]]
    sources: str

    @functools.cached_property
    def sections(self) -> list[Section]:
        """All of the report."""
        crowded = beyond_speed_figures(self.groups)
        found = [
            Section(one.title, tables(one), drawn, NO_SPEED_FIGURE if one in crowded else "")
            for one, drawn in zip(self.groups, self.figures, strict=True)
        ]
        if self.curves:
            found.append(Section("Learning curves", [], self.curves))
        return found + cost_sections.sections(self.costs)

    def render(self, form: str, *, alone: bool = False) -> dict[str, str]:
        """The contents of the files of one format, by file name.

        Args:
            form: md, csv, latex or html.
            alone: Markdown names no figures, as there are no files of them.
        """
        if form == "csv":
            texts = {}
            if self.groups:
                texts |= {_FILES[form]: accuracy_csv(self.groups)}
                texts |= {_CSV_OF_PROGRAMS: costs_csv(self.groups)}
            if self.costs:
                texts[_CSV_OF_COSTS] = cost_sections.as_csv(self.costs)
            return texts
        if form == "html":
            text = page(self.sections, self.sources, summary(self.groups))
        elif form == "latex":
            text = formats.latex_of_all(self.sections)
        else:
            shown = self.sections
            if alone:
                shown = [section._replace(figures=[]) for section in shown]
            text = formats.document(shown, self.sources, summary(self.groups))
        return {_FILES[form]: text}


def main(argv: list[str]) -> None:
    """Parses the flags, renders, and prints or writes."""
    options = _parser().parse_args(argv)
    wanted = _formats(options.format)
    rows, costs, sources = read(options.rows)
    groups = group(rows)
    measured = speeds.read(options.speeds) if options.speeds else None
    drawn = figures(groups, options.curves, measured)
    report = Report(groups, *drawn, sheets(costs), sources)
    if options.out is None:
        if "csv" in wanted and groups and costs:
            raise UserError("rows of accuracy and of cost make two CSV files: say --out=DIR")
        if options.curves and "html" not in wanted:
            raise UserError("--curves draws figures, which need a folder: say --out=DIR")
        texts = {}
        for form in wanted:
            texts |= report.render(form, alone=True)
        texts.pop(_CSV_OF_PROGRAMS, None)  # a file of its own
        print("\n".join(texts.values()), end="")
    else:
        _write(report, wanted, pathlib.Path(options.out))


def _write(report: Report, wanted: list[str], out: pathlib.Path) -> None:
    """Writes RESULTS.md, what is wanted besides, and the figures; prints tables and paths."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for section in report.sections:
        for figure in section.figures:
            written += save(figure, out / "figures")
    # Behind the figures that they name.
    for form in dict.fromkeys(["md", *wanted]):
        for name, text in report.render(form).items():
            write_atomically(out / name, text)
            written.append(out / name)
    for section in report.sections:
        if section.tables:
            first = section.tables[0]
            print(f"{section.title}\n\n{first.caption}\n\n{formats.plain(first)}")
    print("wrote", *written, sep="\n  ")


def _formats(text: str) -> list[str]:
    wanted = text.split(",")
    for form in wanted:
        if form not in _FILES:
            raise UserError(f"unknown format '{form}'{near_match(form, _FILES)}")
    return wanted


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(prog="python -m lra.report", description=__doc__)
    parser.add_argument("rows", nargs="+", metavar="ROWS.jsonl", help="files of rows")
    parser.add_argument("--format", default="md", metavar="md,csv,latex,html", help="any of them")
    parser.add_argument(
        "--out", type=folder, metavar="DIR", help="write there instead of to the terminal"
    )
    parser.add_argument("--speeds", metavar="STEPS.jsonl", help="rows of benchmarks.train_step")
    parser.add_argument(
        "--curves", nargs="+", default=[], metavar="WORKDIR", help="folders of runs to draw"
    )
    return parser


if __name__ == "__main__":
    gc.disable()  # rows stay to the end of this short process: saves a tenth of its time
    run(main)
