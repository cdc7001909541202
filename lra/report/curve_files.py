"""Learning curves in a file, which outlives the folders of their runs: a line for each seed.

    python -m lra.report.curve_files runs/table/image-* >> results/curves/image.jsonl
    python -m lra.report ROWS.jsonl --curves results/curves/image.jsonl --out=DIR

A line is a JSON object: `task`, `attention`, `config_overrides` and `seed` name the run,
`row_sha256` the row of its result. For each validation it has the `step`, `val_accuracy`,
`val_loss`, and `train_loss` and `train_accuracy`, which are means over the steps since the one
before. Lines without the last two, as older ones are, show no losses.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from ml_collections import config_dict

from lra import records
from lra.command_line import ArgumentParser, folder, run
from lra.errors import UserError
from lra.metrics import read_metrics
from lra.protocol import overrides_of
from lra.settings import CONFIGS, load_config, text_of
from lra.tasks import get_task
from lra.workdir import Workdir

_ACCURACY_DIGITS, _LOSS_DIGITS = 5, 4


class SeedCurve(NamedTuple):
    """Curve of one seed: config, steps of validations, losses in between or none, accuracies."""

    config: config_dict.ConfigDict
    step: list[int]
    train_loss: list[float]
    val_accuracy: list[float]


def main(argv: list[str]) -> None:
    """Print the lines of the runs in some folders."""
    parser = ArgumentParser(prog="python -m lra.report.curve_files", description=__doc__)
    parser.add_argument("workdirs", nargs="+", type=folder, metavar="WORKDIR", help="complete runs")
    for line in [line for root in parser.parse_args(argv).workdirs for line in lines_of(root)]:
        print(json.dumps(line))


def lines_of(workdir: str) -> list[dict[str, Any]]:
    """Return the line of each seed of a complete run that did not diverge.

    Raises:
        UserError: There is no run, it is not complete, or it is damaged.
    """
    found = Workdir(workdir)
    config = found.load_config()
    if not (found.rows.exists() and found.metrics.exists()):
        raise UserError(f"{workdir} holds no complete run; train.py goes on with it")
    number = len(records.read(found.rows))  # raises if they are damaged
    rows = [json.loads(line) for line in found.rows.read_text().splitlines()[:number]]
    entries = [
        each for each in read_metrics(found.metrics) if len(each["loss"]) == len(config.seeds)
    ]
    return [
        {
            "task": config.task,
            "attention": config.model.attention.name,
            "config_overrides": overrides_of(config),
            "seed": row["seed"],
            "row_sha256": row["sha256"],
            **_series(entries, config.seeds.index(row["seed"])),
        }
        for row in rows
        if row["status"] == "ok"
    ]


def _series(entries: list[dict[str, Any]], index: int) -> dict[str, list]:
    """Return the numbers of one seed, given its index in the run, from the lines of its metrics."""
    series: dict[str, list] = {
        name: [] for name in ("step", "val_accuracy", "val_loss", "train_loss", "train_accuracy")
    }
    before, since = 0, []  # numbers of steps and their means, since the last validation
    for entry in sorted(entries, key=lambda entry: (entry["step"], entry["kind"] == "eval")):
        loss, accuracy = entry["loss"][index], entry["accuracy"][index]
        if entry["kind"] == "train":
            since.append((entry["step"] - before, loss, accuracy))
            before = entry["step"]
        elif entry.get("split") == "validation" and since:
            count = sum(steps for steps, _, _ in since)
            series["step"].append(entry["step"])
            series["val_accuracy"].append(round(accuracy, _ACCURACY_DIGITS))
            series["val_loss"].append(round(loss, _LOSS_DIGITS))
            for name, at in (("train_loss", 1), ("train_accuracy", 2)):
                total = sum(values[0] * values[at] for values in since)
                series[name].append(round(total / count, _LOSS_DIGITS))
            since = []
    return series


def read(path: pathlib.Path) -> list[SeedCurve]:
    """Read the curves of a file.

    Raises:
        UserError: A line is not such a curve.
    """
    return list(_read(path))


def _read(path: pathlib.Path) -> Iterator[SeedCurve]:
    content = path.read_text(encoding="utf-8", errors="replace")
    for number, text in enumerate(content.splitlines(), start=1):
        try:
            line = json.loads(text)
            overrides = {**line["config_overrides"], "seeds": [line["seed"]]}
            spec = f"{CONFIGS / get_task(line['task']).name}.py:{line['attention']}"
            config = load_config(
                spec, [f"{key}={text_of(value)}" for key, value in overrides.items()]
            )
            series = [line["step"], line.get("train_loss", []), line["val_accuracy"]]
            steps, losses, accuracies = map(len, series)
            valid = all(map(_are_numbers, series)) and steps == accuracies > 0
            valid = valid and losses in (0, steps)
        except (ValueError, TypeError, KeyError, UserError, RecursionError) as error:
            raise UserError(f"{path}, line {number}: no learning curve ({error})") from None
        if not valid:
            raise UserError(f"{path}, line {number}: not one number for each of its steps")
        yield SeedCurve(config, *series)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) in (int, float) for value in values)


if __name__ == "__main__":
    run(main)
