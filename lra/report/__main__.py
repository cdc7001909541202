"""Renders rows: accuracies beside published ones, costs, curves.

    python -m lra.report results/accuracy.jsonl                     tables, to the terminal
    python -m lra.report results/*.jsonl --out=results              RESULTS.md and figures/
    python -m lra.report ROWS.jsonl --format=md,csv,latex,html --out=DIR --curves runs/table/*

Only rows of the protocol `table3` fill the table of the paper; all others have tables of their
own.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterable
from typing import NamedTuple

from lra import records
from lra.command_line import ArgumentParser, near_match, run
from lra.errors import UserError
from lra.files import write_atomically
from lra.report import formats
from lra.report.figures import Figure, figures, save
from lra.report.groups import Group, group
from lra.report.page import page
from lra.report.tables import Table, tables
from lra.row import Row

_FILES = {"md": "RESULTS.md", "csv": "results.csv", "latex": "results.tex", "html": "results.html"}


class Report(NamedTuple):
    """What there is to tell."""

    groups: list[Group]
    figures: dict[str, list[Figure]]
    sources: str

    def sections(self) -> list[tuple[str, list[Table], list[Figure]]]:
        """Title, tables and figures of each section."""
        found = [(g.title, tables(g), self.figures[g.slug]) for g in self.groups]
        if "curves" in self.figures:
            found.append(("Learning curves", [], self.figures["curves"]))
        return found

    def render(self, form: str) -> str:
        """All of it in one of the formats."""
        if form == "csv":
            return formats.as_csv(self.groups)
        if form == "html":
            return page(self.sections(), self.sources)
        if form == "latex":
            return "\n".join(formats.latex(t) for _, found, _ in self.sections() for t in found)
        return formats.document(self.sections(), self.sources)


def main(argv: list[str]) -> None:
    """Parses the flags, renders, and prints or writes."""
    options = _parser().parse_args(argv)
    wanted = _formats(options.format)
    groups = group(_read(options.rows))
    report = Report(groups, figures(groups, options.curves), ", ".join(options.rows))
    if options.out is None:
        for form in wanted:
            print(report.render(form), end="")
    else:
        _write(report, wanted, pathlib.Path(options.out))


def _write(report: Report, wanted: list[str], out: pathlib.Path) -> None:
    """Writes RESULTS.md, what is wanted besides, and the figures; prints tables and paths."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for form in dict.fromkeys(["md", *wanted]):
        write_atomically(out / _FILES[form], report.render(form))
        written.append(out / _FILES[form])
    for of_section in report.figures.values():
        for figure in of_section:
            written += save(figure, out / "figures")
    for title, found, _ in report.sections():
        if found:
            print(f"{title}\n\n{formats.plain(found[0])}")
    print("wrote", *written, sep="\n  ")


def _read(paths: Iterable[str]) -> list[Row]:
    """One row a key from all files; the first file counts where two disagree, which is said."""
    chosen: dict[records.Key, Row] = {}
    for path in paths:
        disagreeing = 0
        for row in records.latest(records.read(path)):
            there = chosen.setdefault(records.key(row), row)
            if not there.final:
                chosen[records.key(row)] = row
            disagreeing += there.final and row.final and there != row
        if disagreeing:
            print(f"{path}: {disagreeing} rows differ in files before it", file=sys.stderr)
    if not chosen:
        raise UserError(f"no rows in {', '.join(paths)}")
    return list(chosen.values())


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
    parser.add_argument("--out", metavar="DIR", help="write there instead of to the terminal")
    parser.add_argument(
        "--curves", nargs="+", default=[], metavar="WORKDIR", help="folders of runs to draw"
    )
    return parser


if __name__ == "__main__":
    run(main)
