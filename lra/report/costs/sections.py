"""Sections of a report on costs, one per setting, and all cells as CSV."""

import dataclasses
import json
from typing import Any

from lra.efficiency import CostRow
from lra.report.accuracy_csv import csv_text
from lra.report.costs.figures import cost_figures
from lra.report.costs.legend import legend
from lra.report.costs.ratios import times_less
from lra.report.costs.savings import savings
from lra.report.costs.sheets import Line, Setting, Sheet
from lra.report.costs.summaries import best_peers, ceilings, exponents, peer_table
from lra.report.costs.tables import paper_tables, section_title
from lra.report.figure_files import Figure
from lra.report.sections import Section
from lra.report.table import Table

_RATIOS = ("relative_to", "times_faster", "times_less_memory")
_LEFT_OUT = ("schema", "kind", "versions")
_FIELDS = [field.name for field in dataclasses.fields(CostRow) if field.name not in _LEFT_OUT]


def _tables(sheets: list[Sheet]) -> list[Table]:
    """Return all tables of one setting: summaries, then (folded) the papers' tables and others."""
    tables = []
    if sheets[0].setting.benchmark != "fixed_tokens":
        tables += [best_peers(sheets), exponents(sheets)]
    details = [table for sheet in sheets for table in paper_tables(sheet)]
    if sheets[0].setting.benchmark == "module":
        details += savings(sheets)
    for sheet in sheets:
        details += [peer_table(sheet, field) for field in ("seconds", "peak_memory_mb")]
        details.append(ceilings(sheet))
    tables += [table._replace(folded=True) for table in details]
    return [table for table in tables if table.lines]


def figures(settings: dict[Setting, list[Sheet]]) -> list[list[Figure]]:
    """Return the figures of each setting."""
    slugs: dict[str, int] = {}
    result = []
    for setting, sheets in settings.items():
        slug = f"cost-{setting.benchmark.replace('_', '-')}-d{setting.dim}-{setting.dtype}"
        slugs[slug] = number = slugs.get(slug, 0) + 1
        # Settings that differ only in device, threads, heads or tokens are numbered.
        slug = slug if number == 1 else f"{slug}-{number}"
        result.append(cost_figures(slug, sheets))
    return result


def sections(settings: dict[Setting, list[Sheet]], drawn: list[list[Figure]]) -> list[Section]:
    """Return a section for each setting, with its figures of `drawn`."""
    return [
        Section(section_title(setting), tables := _tables(sheets), own, legend(sheets, tables))
        for (setting, sheets), own in zip(settings.items(), drawn, strict=True)
    ]


def as_csv(settings: dict[Setting, list[Sheet]]) -> str:
    """Return a CSV file with a line per cell: its row, and its savings over exact attention."""
    cells = (
        _facts(sheet, line, row)
        for sheets in settings.values()
        for sheet in sheets
        for line in sheet.lines
        for row in sheet.all_rows(line)
    )
    return csv_text([*_FIELDS, *_RATIOS], cells)


def _facts(sheet: Sheet, line: Line, row: CostRow) -> dict[str, Any]:
    """Return one line of the CSV file."""
    facts = {name: getattr(row, name) for name in _FIELDS}
    facts["options"] = json.dumps(row.options, sort_keys=True)
    if sheet.reference:
        facts["relative_to"] = sheet.reference.label
    for name, field in zip(_RATIOS[1:], ("seconds", "peak_memory_mb"), strict=True):
        ratio = times_less(sheet, line, sheet.reference, row.length, field, row.run)
        facts[name] = round(ratio.times, 4) if ratio else None
    return facts
