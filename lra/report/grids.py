"""Sections of rows that change different keys, since a key at its default counts as unchanged.

In a grid over two keys, rows at the default of one change only the other, and those in its corner
neither. Each section is given the rows of others that are points of its sweep, and one whose rows
another has too is left out. Rows of the paper's table are repeated, and keep their place there.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from lra.report import changes
from lra.row import Row

# The keys that rows change, sorted, and the title of their data.
Place = tuple[tuple[str, ...], str]
# More sets of keys than those of a grid over four are a search in many keys, whose sections overlap
# so much that most rows would be repeated in several of them.
_MOST_SETS = 2**4


@dataclasses.dataclass(frozen=True)
class _Run:
    """Rows of one configuration.

    Attributes:
        subject: Task, attention and its options.
        changed: What the rows change of the protocol.
        rows: The rows, one a seed at least.
    """

    subject: tuple[str, str, str]
    changed: dict[str, Any]
    rows: list[Row]

    def value(self, key: str) -> str:
        """Return the value of a key of the protocol, changed or not, as text."""
        values = self.changed if key in self.changed else changes.values(self.rows[0], [key])
        return str(values[key])


_Runs = dict[str, _Run]


def merge_sections(
    sections: Mapping[Place, list[Row]], table: Mapping[str, list[Row]], lra_data: str
) -> dict[Place, list[Row]]:
    """Return the sections with the points of their sweeps that others have, the own rows first.

    Args:
        sections: Rows by the keys that they change and by the title of their data.
        table: Rows of the paper's table and of tasks beside LRA's, by the title of their data.
        lra_data: Title of LRA's data. Rows on them that change no key are a sweep of options, and
            points of other sweeps only as rows of the table are.
    """
    tables = {data: _by_run(rows) for data, rows in table.items()}
    by_data: dict[str, dict[tuple[str, ...], _Runs]] = defaultdict(dict)
    # Those that change most keys first: they have all that any other of the same sweep has.
    for (keys, data), rows in sorted(sections.items(), key=lambda each: -len(each[0][0])):
        by_data[data][keys] = _by_run(rows)
    result = {}
    for data, runs_of in by_data.items():
        unchanged = tables.get(data, {})
        if data == lra_data:
            unchanged = runs_of.get((), {}) | unchanged
        made: list[_Runs] = []
        for keys, runs in runs_of.items():
            smaller = {
                others: found
                for others, found in runs_of.items()
                if len(runs_of) <= _MOST_SETS
                if set(others) < set(keys) and (others or data != lra_data)
            }
            section = _with_points(keys, runs, smaller)
            section |= _unchanged_points(keys, section, unchanged)
            if not any(section.keys() <= larger.keys() for larger in made):
                made.append(section)
                result[keys, data] = [row for run in section.values() for row in run.rows]
    return result


def _by_run(rows: Iterable[Row]) -> _Runs:
    runs: _Runs = {}
    for row in rows:
        options, changed = changes.options(row), changes.of_protocol(row)
        subject = row.task, row.attention, str(sorted(options.items()))
        run = runs.setdefault(f"{subject} {sorted(changed.items())}", _Run(subject, changed, []))
        run.rows.append(row)
    return runs


def _with_points(
    keys: tuple[str, ...], runs: _Runs, smaller: dict[tuple[str, ...], _Runs]
) -> _Runs:
    """Add the runs of sections with fewer keys that are points of the same sweep.

    They are at the default of keys that vary, and of one more at most (that of an ablation with a
    single value), and have the subject and the constant values of a run of the section. Points may
    make other keys vary, so they are looked for until there are no more.
    """
    section = dict(runs)
    while True:
        several = set(_varying(keys, section))
        found: _Runs = {}
        for others, candidates in smaller.items():
            if len(set(keys) - set(others) - several) <= 1:
                fixed = [key for key in others if key not in several]
                known = {_setting(run, fixed) for run in section.values()}
                found |= {
                    name: run
                    for name, run in candidates.items()
                    if name not in section and _setting(run, fixed) in known
                }
        if not found:
            return section
        section |= found


def _unchanged_points(keys: tuple[str, ...], section: _Runs, unchanged: _Runs) -> _Runs:
    """Return the runs without changed keys that are points of a section's sweep.

    Those are, of a sweep of options, all of its subjects without options; else those that equal a
    run of the section but for one key, which varies unless they have options: the paper's table
    is no line of a section that has another value of a key, and no sweep.
    """
    if not keys:
        swept = {run.subject[:2] for run in section.values()}
        return {
            name: run
            for name, run in unchanged.items()
            if run.subject[:2] in swept and name not in section
        }
    several = _varying(keys, section)
    near = [run for run in section.values() if len(run.changed) == 1]
    subjects = {run.subject for run in near}
    of_sweep = {run.subject for run in near if next(iter(run.changed)) in several}
    return {
        name: run
        for name, run in unchanged.items()
        if run.subject in (subjects if changes.options(run.rows[0]) else of_sweep)
    }


def _varying(keys: Iterable[str], section: _Runs) -> list[str]:
    return [key for key in keys if len({run.value(key) for run in section.values()}) > 1]


def _setting(run: _Run, fixed: list[str]) -> tuple:
    return run.subject, *map(run.value, fixed)
