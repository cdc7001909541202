"""What each config starts with: paper, data, command, and accuracies, those of the rows."""

import ast
import pathlib

import pytest

from configs.sweeps.table import ATTENTIONS
from lra import records
from lra.published import TABLE3
from lra.row import LRA_DATA, Row, latest
from lra.tasks import TASKS

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIELDS = ["Paper", "Data", "Train", "Published", "Here", "Chance", "Time"]
SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.py"))


def header(path: pathlib.Path) -> dict[str, list[str]]:
    """The lines of each field."""
    fields: dict[str, list[str]] = {}
    for line in ast.get_docstring(ast.parse(path.read_text())).split("\n\n")[1].splitlines():
        name, text = line[:11].strip(), line[11:]
        if name:
            fields[name.rstrip(":")] = []
        fields[list(fields)[-1]].append(text)
    return fields


def table3_rows(task: str) -> list[Row]:
    """Results by the protocol; of each attention those of the number format of its first."""
    rows = latest(records.read(ROOT / "results" / "accuracy.jsonl"))
    rows = [r for r in rows if (r.task, r.protocol, r.status) == (task, "table3", "ok")]
    formats = {row.attention: row.dtype for row in reversed(rows)}
    return [row for row in rows if row.dtype == formats[row.attention]]


def joined(accuracies: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in accuracies.items())


def here(rows: list[Row]) -> list[str]:
    """What `Here` has to say: means over seeds, how many these are, data that are not LRA's."""
    seeds = {
        name: [row.test_accuracy for row in rows if row.attention == name] for name in ATTENTIONS
    }
    seeds = {name: values for name, values in seeds.items() if values}
    if not seeds:
        return ["not run yet"]
    (data,) = {row.data for row in rows}
    others = "" if data in LRA_DATA else f", on {data}"
    means = {name: 100 * sum(values) / len(values) for name, values in seeds.items()}
    if {len(values) for values in seeds.values()} == {1}:
        return [joined(means), ("one seed" if len(seeds) == 1 else "one seed each") + others]
    *first, last = (str(len(values)) for values in seeds.values())
    counts = f"{', '.join(first)} and {last}" if first else last
    return [joined(means), f"means of {counts} seeds{others}"]


def time(rows: list[Row]) -> str:
    """How `Time` has to begin: of runs that stayed on one device."""
    if not rows:
        return "not run yet"
    minutes = [row.wall_seconds / 60 for row in rows if not row.moved]
    shortest, longest = f"{min(minutes):.0f}", f"{max(minutes):.0f}"
    span = shortest if shortest == longest else f"{shortest} to {longest}"
    return f"{span} min a run"


@pytest.mark.parametrize("name", [*TASKS, *(f"sweeps/{path.stem}" for path in SWEEPS)])
def test_a_config_starts_with_the_same_block(name):
    path = ROOT / "configs" / f"{name}.py"
    fields = header(path)
    assert list(fields) == FIELDS
    kind = "-m lra.sweep" if "/" in name else "train.py"
    config = f"{'--config=' * ('/' not in name)}configs/{name}.py"
    assert fields["Train"][0].startswith(f"python {kind} {config}")


@pytest.mark.parametrize("task", TABLE3["standard"])
def test_published_accuracies_are_those_of_the_table(task):
    expected = joined({name: TABLE3[name][task] for name in ATTENTIONS})
    assert header(ROOT / "configs" / f"{task}.py")["Published"][0] == expected


@pytest.mark.parametrize("task", TASKS)
def test_accuracies_and_times_here_are_those_of_the_rows(task):
    rows, fields = table3_rows(task), header(ROOT / "configs" / f"{task}.py")
    lines = [f"{'Here:':<11}{here(rows)[0]}", *(" " * 11 + line for line in here(rows)[1:])]
    paste = "\n".join([f"in configs/{task}.py:", *lines])
    assert fields["Here"] == here(rows), paste
    assert fields["Time"][0].startswith(time(rows)), f"Time in configs/{task}.py: {time(rows)}"


def test_the_quick_sweep_goes_where_make_lets_it_go():
    said = " ".join(" ".join(header(ROOT / "configs/sweeps/quick.py")["Train"]).split())
    makefile = (ROOT / "Makefile").read_text().replace("$(QUICK)", "runs/quickstart")
    made = makefile.partition("$(BIN)/python -m lra.sweep")[2].partition("\n\t$(BIN)")[0]
    assert said == "python -m lra.sweep" + " ".join(["", *made.split()])
