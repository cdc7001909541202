"""Render result rows: accuracies beside published ones, costs, learning curves.

    python -m lra.report results/accuracy.jsonl                     tables, to the terminal
    python -m lra.report results/efficiency.jsonl                   costs, to the terminal
    python -m lra.report runs/table.jsonl --out=runs/table          RESULTS.md and figures/
    python -m lra.report ROWS.jsonl --format=md,csv,latex,html --out=DIR --curves runs/table/*
    python -m lra.report ROWS.jsonl --speeds=train_step.jsonl --out=DIR

Files may hold rows of accuracy, of cost, or both. Only rows of the protocol `table3` fill the
paper's table; all others have tables of their own. Costs have one section per device, number of
threads, version of JAX, width and number format; times are compared only within one run. As CSV,
accuracies go to results.csv, the costs of their programs to costs.csv (only with --out), and other
costs to efficiency.csv. Accuracy is plotted against the speeds of the runs themselves. Speeds
measured one by one with benchmarks.train_step compare attentions, and the sizes of a sweep, better:
give its rows as --speeds, for the paper's table and for sweeps of which every point was measured.
"""

import argparse
import dataclasses
import functools
import gc
import itertools
import pathlib

from lra.command_line import ArgumentParser, folder, run
from lra.errors import UserError
from lra.files import write_atomically
from lra.near_names import near_match
from lra.process import cores
from lra.report import formats, speeds
from lra.report.accuracy_csv import accuracy_csv, costs_csv
from lra.report.costs import sections as cost_sections
from lra.report.costs.sheets import Setting, Sheet, sheets
from lra.report.figure_files import Figure, drawn_ahead, save
from lra.report.figures import NO_SPEED_FIGURE, beyond_speed_figures, figures
from lra.report.groups import Group, group
from lra.report.notes import summary
from lra.report.page import page
from lra.report.reading import as_text, read
from lra.report.sections import Section
from lra.report.tables import tables

_FILES = {"md": "RESULTS.md", "csv": "results.csv", "latex": "results.tex", "html": "results.html"}
# Two more CSV files, since costs have other columns than accuracies.
_PROGRAM_COSTS_CSV, _COSTS_CSV = "costs.csv", "efficiency.csv"


@dataclasses.dataclass(frozen=True)
class Report:
    """Content of a report: groups of accuracies, figures, costs, and the source files in words."""

    groups: list[Group]
    figures: list[list[Figure]]  # one list per group
    curves: list[Figure]
    costs: dict[Setting, list[Sheet]]
    cost_figures: list[list[Figure]]  # one list per setting
    sources: str

    @property
    def all_figures(self) -> list[Figure]:
        """All figures, in the order of the sections."""
        return [*itertools.chain(*self.figures), *self.curves, *itertools.chain(*self.cost_figures)]

    @functools.cached_property
    def sections(self) -> list[Section]:
        """All sections of the report: accuracies, learning curves, costs."""
        without_speed_figure = beyond_speed_figures(self.groups)
        sections = [
            Section(
                one.title,
                tables(one),
                group_figures,
                NO_SPEED_FIGURE if one in without_speed_figure else "",
            )
            for one, group_figures in zip(self.groups, self.figures, strict=True)
        ]
        if self.curves:
            sections.append(Section("Learning curves", [], self.curves))
        return sections + cost_sections.sections(self.costs, self.cost_figures)

    def render(self, form: str, *, alone: bool = False) -> dict[str, str]:
        """Return the contents of the files of one format, by file name.

        Args:
            form: Format: md, csv, latex or html.
            alone: Whether to leave figures out of Markdown, as their files are not written.
        """
        if form == "csv":
            texts = {}
            if self.groups:
                texts |= {_FILES[form]: accuracy_csv(self.groups)}
                texts |= {_PROGRAM_COSTS_CSV: costs_csv(self.groups)}
            if self.costs:
                texts[_COSTS_CSV] = cost_sections.as_csv(self.costs)
            return texts
        if form == "html":
            text = page(self.sections, self.sources, summary(self.groups))
        elif form == "latex":
            text = formats.latex_of_all(self.sections)
        else:
            sections = self.sections
            if alone:
                sections = [section.without_figures() for section in sections if section.tables]
            text = formats.document(sections, self.sources, summary(self.groups))
        return {_FILES[form]: text}


def main(argv: list[str], processes: int = 1) -> None:
    """Parse the flags, render the report, and print it or write its files.

    Args:
        argv: Flags.
        processes: The most processes to draw figures in (see `drawn_ahead`).
    """
    options = _parser().parse_args(argv)
    forms = _formats(options.format)
    rows, costs, sources = read(options.rows)
    groups = group(rows)
    measured = speeds.read(options.speeds) if options.speeds else ()
    group_and_curve_figures = figures(groups, options.curves, measured)
    if options.speeds:
        sources += f", {as_text(options.speeds)}"
    cost_sheets = sheets(costs)
    cost_figures = cost_sections.figures(cost_sheets)
    report = Report(groups, *group_and_curve_figures, cost_sheets, cost_figures, sources)
    if options.out is None:
        if "csv" in forms and groups and costs:
            raise UserError("rows of accuracy and of cost make two CSV files: say --out=DIR")
        if (options.curves or options.speeds) and "html" not in forms:
            flag = "--curves" if options.curves else "--speeds"
            raise UserError(f"{flag} is for figures, which need a folder: say --out=DIR")
        texts = {}
        for form in forms:
            texts |= report.render(form, alone=True)
        texts.pop(_PROGRAM_COSTS_CSV, None)  # only with --out: two CSV files cannot share a stream
        print("\n".join(texts.values()), end="")
    else:
        _write(report, forms, pathlib.Path(options.out), processes)


def _write(report: Report, forms: list[str], out: pathlib.Path, processes: int) -> None:
    """Write figures, RESULTS.md and the other formats; print the main tables and all paths."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    with drawn_ahead(report.all_figures, processes):
        # Rendered meanwhile but written last, since they refer to the figures.
        texts = {}
        for form in dict.fromkeys(["md", *forms]):
            texts |= report.render(form)
        for figure in report.all_figures:
            written += save(figure, out / "figures")
    for name, text in texts.items():
        write_atomically(out / name, text)
        written.append(out / name)
    for section in report.sections:
        if section.tables:
            first = section.tables[0]
            print(f"{section.title}\n\n{first.caption}\n\n{formats.plain(first)}")
    print("wrote", *written, sep="\n  ")


def _formats(text: str) -> list[str]:
    forms = text.split(",")
    for form in forms:
        if form not in _FILES:
            raise UserError(f"unknown format '{form}'{near_match(form, _FILES)}")
    return forms


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(prog="python -m lra.report", description=__doc__)
    parser.add_argument("rows", nargs="+", metavar="ROWS.jsonl", help="files of rows")
    parser.add_argument("--format", default="md", metavar="md,csv,latex,html", help="any of them")
    parser.add_argument(
        "--out", type=folder, metavar="DIR", help="write there instead of to the terminal"
    )
    parser.add_argument("--speeds", metavar="STEPS.jsonl", help="rows of benchmarks.train_step")
    parser.add_argument(
        "--curves",
        nargs="+",
        default=[],
        metavar="WORKDIR",
        help="folders of runs, or files of curves, to draw",
    )
    return parser


if __name__ == "__main__":
    gc.disable()  # rows live until this short process ends: saves a tenth of its time
    run(functools.partial(main, processes=cores()))
