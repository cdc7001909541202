"""Reading of rows from files, and the choice of those that count."""

import itertools
import os
from collections.abc import Iterable
from typing import NamedTuple

from lra import records
from lra.efficiency import CostRow, either_from_json
from lra.errors import UserError
from lra.report.provenance import number_format_of
from lra.row import Row, key, latest, make_key, without_number_format
from lra.stderr import say


class Rows(NamedTuple):
    """The rows of some files.

    Attributes:
        accuracies: One row per run, seed, data and number format, in the order in which they
            finished, whatever the order of the files.
        costs: All rows of cost.
        sources: Names of the files, with the number of rows of each that were left out.
    """

    accuracies: list[Row]
    costs: list[CostRow]
    sources: str


def read(paths: Iterable[str]) -> Rows:
    """Read all rows of the files.

    If a seed has several results, the first counts; any result takes precedence over failures. A
    later result that differs is left out, which is reported on stderr and in the sources.

    Raises:
        UserError: A file cannot be read, or no file has rows.
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
                left_out += _outcome(results.setdefault(_key(row), row)) != _outcome(row)
        note = _note(left_out)
        name = as_text(path)
        sources.append(f"{name} ({note})" if note else name)
        if note:
            say(f"{path}: {note}")
    finished = {key(row) for row in results.values()}
    unfinished = [row for row in failures if key(row) not in finished]
    accuracies = [*results.values(), *latest(unfinished)]
    if not accuracies and not costs:
        raise UserError(f"no rows in {', '.join(paths)}")
    return Rows(_in_order(accuracies), costs, ", ".join(sources))


def _in_order(rows: list[Row]) -> list[Row]:
    """Sort rows by the time at which they finished, whatever their order before."""

    def order(row: Row) -> tuple:
        return row.finished, row.task, row.attention, row.seed, row.protocol

    result = []
    for _, alike in itertools.groupby(sorted(rows, key=order), key=order):
        # The whole of a row tells few of them apart, and takes long to write out.
        several = list(alike)
        result += sorted(several, key=repr) if len(several) > 1 else several
    return result


def as_text(path: str) -> str:
    """Return the name of a file as valid text, which file names need not be."""
    return os.fsencode(path).decode(errors="replace")


def _key(row: Row) -> tuple:
    """Return what identifies a result: its run and seed, its data, its number format."""
    # The number format is added apart, since not every row lists it among the overrides.
    overrides = without_number_format(row.config_overrides)
    run = make_key(row.task, row.attention, overrides, row.seed, row.protocol, row.data)
    return run, row.data_sha256, number_format_of(row)


def _outcome(row: Row) -> tuple:
    """Return the result without costs: rows that differ in it contradict each other."""
    return row.status, row.test_accuracy, row.test_accuracy_last, row.diverged_step


def _note(left_out: int) -> str:
    if not left_out:
        return ""
    rows = f"{left_out} row{'s' if left_out > 1 else ''}"
    return f"{rows} left out: a row before it is of the same run and seed, with another result"
