"""Reads rows from files and chooses those that count."""

import os
from collections.abc import Iterable
from typing import NamedTuple

from lra import records
from lra.efficiency import CostRow, either_from_json
from lra.errors import UserError
from lra.report.provenance import number_format_of
from lra.row import Row, without_number_format
from lra.stderr import say


class Rows(NamedTuple):
    """The rows of some files.

    Attributes:
        accuracies: one row for each seed of a run on the same data in the same number format; in
            the order in which they finished, whatever that of the files.
        costs: all rows of cost.
        sources: the files in words, and how many rows of each were left out.
    """

    accuracies: list[Row]
    costs: list[CostRow]
    sources: str


def read(paths: Iterable[str]) -> Rows:
    """All rows of the files.

    If a seed has several results, the first counts; a result counts before any failure. A later
    result that differs is left out, which is said on stderr and in the sources.

    Raises:
        UserError: a file that cannot be read, or no rows in any.
    """
    results: dict[tuple, Row] = {}
    failures, costs, sources = [], [], []
    for path in paths:
        left_out = 0
        for row in records.read(path, either_from_json):
            if isinstance(row, CostRow):
                costs.append(row)
            elif not row.final:
                failures.append(row)
            else:
                left_out += _found_out(results.setdefault(_key(row), row)) != _found_out(row)
        told = _told(left_out)
        # Names of files need not be text.
        name = os.fsencode(path).decode(errors="replace")
        sources.append(f"{name} ({told})" if told else name)
        if told:
            say(f"{path}: {told}")
    finished = {records.key(row) for row in results.values()}
    unfinished = [row for row in failures if records.key(row) not in finished]
    accuracies = [*results.values(), *records.latest(unfinished)]
    accuracies.sort(key=lambda row: (row.finished, repr(row)))
    if not accuracies and not costs:
        raise UserError(f"no rows in {', '.join(paths)}")
    return Rows(accuracies, costs, ", ".join(sources))


def _key(row: Row) -> tuple:
    """What identifies a result: its run and seed, its data, its number format."""
    # Not every row lists its number format among the overrides.
    rest = without_number_format(row.config_overrides)
    run = records.make_key(row.task, row.attention, rest, row.seed, row.protocol, row.data)
    return run, row.data_sha256, number_format_of(row)


def _found_out(row: Row) -> tuple:
    """What was found, costs aside: results that differ in this contradict each other."""
    return row.status, row.test_accuracy, row.test_accuracy_last, row.diverged_step


def _told(left_out: int) -> str:
    if not left_out:
        return ""
    rows = f"{left_out} row{'s' * (left_out > 1)}"
    return f"{rows} left out: a row before it is of the same run and seed, with another result"
