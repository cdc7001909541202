"""Learning curves in a file, which outlives the folders of their runs: a line for each seed.

    python -m lra.report.curve_files runs/table/image-* >> results/curves/image.jsonl
    python -m lra.report ROWS.jsonl --curves results/curves/image.jsonl --out=DIR

A line is a JSON object: `task`, `attention`, `config_overrides` and `seed` name the run, `data` its
data, `row_sha256` the row of its result. For each validation it has the `step`, `val_accuracy`,
`val_loss`, and `train_loss` and `train_accuracy`, which are means over the steps since the one
before. Lines without the last two, as older ones are, show no losses.
"""

import hashlib
import itertools
import json
import pathlib
from typing import Any, NamedTuple

from ml_collections import config_dict

from lra import records
from lra.command_line import ArgumentParser, folder, run
from lra.errors import UserError
from lra.metrics import MAX_STEP, is_number, read_metrics
from lra.protocol import overrides_of
from lra.row import Row, from_json
from lra.settings import CONFIGS, load_config, text_of
from lra.tasks import get_task
from lra.workdir import Workdir

_ACCURACY_DIGITS, _LOSS_DIGITS = 5, 4


class SeedCurve(NamedTuple):
    """Curve of one seed: config, data, steps of validations, losses between or none, accuracies."""

    config: config_dict.ConfigDict
    data: str | None
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
    rows = records.read(found.rows, _row_and_sha256, repair=False)
    if {row.seed for row, _ in rows} != set(config.seeds):
        raise UserError(f"{found.rows} does not have a row of each seed of its run")
    entries = [
        each for each in read_metrics(found.metrics) if len(each["loss"]) == len(config.seeds)
    ]
    return [
        {
            "task": config.task,
            "attention": config.model.attention.name,
            "config_overrides": overrides_of(config),
            "seed": row.seed,
            "data": row.data,
            "row_sha256": sha256,
            **_series_of(row, entries, config.seeds.index(row.seed), found.metrics),
        }
        for row, sha256 in rows
        if row.status == "ok"
    ]


def _row_and_sha256(line: bytes) -> tuple[Row, str]:
    return from_json(line), hashlib.sha256(line.strip()).hexdigest()


def _series_of(
    row: Row, entries: list[dict[str, Any]], index: int, path: pathlib.Path
) -> dict[str, list]:
    """Return `_series` of a row's seed; raise UserError without the validation that selected it."""
    own = [entry for entry in entries if entry["loss"][index] is not None]
    series = _series([entry for entry in own if entry["accuracy"][index] is not None], index)
    selected = dict(zip(series["step"], series["val_accuracy"], strict=True))
    best = selected.get(row.best_step)
    if best is None or abs(best - row.val_accuracy) > 10**-_ACCURACY_DIGITS:
        raise UserError(
            f"{path} lacks the validation of seed {row.seed} at step {row.best_step}, which its "
            "row has: the file has lost lines"
        )
    return series


def _series(entries: list[dict[str, Any]], index: int) -> dict[str, list]:
    """Return the numbers of one seed, given its index in the run, from the lines of its metrics."""
    series: dict[str, list] = {
        name: [] for name in ("step", "val_accuracy", "val_loss", "train_loss", "train_accuracy")
    }
    before, since = 0, []  # numbers of steps and their means, since the last validation
    for entry in sorted(entries, key=lambda entry: (entry["step"], entry["kind"] == "eval")):
        loss, accuracy = entry["loss"][index], entry["accuracy"][index]
        if entry["kind"] == "train" and entry["step"] > before:
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
    """Read the curves of a file; a line that occurs again counts once.

    Raises:
        UserError: A line is not such a curve.
    """
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    return [
        _parse(text, f"{path}, line {number}")
        for number, text in enumerate(lines, start=1)
        if text.strip() and text not in lines[: number - 1]
    ]


def _parse(text: str, where: str) -> SeedCurve:
    try:
        line = json.loads(text)
        overrides = {**line["config_overrides"], "seeds": [line["seed"]]}
        spec = f"{CONFIGS / get_task(line['task']).name}.py:{line['attention']}"
        config = load_config(spec, [f"{key}={text_of(value)}" for key, value in overrides.items()])
        data = line.get("data")
        series = line["step"], line.get("train_loss", []), line["val_accuracy"]
        steps, losses, accuracies = map(len, series)
        valid = steps == accuracies > 0 and losses in (0, steps) and _are_valid(*series)
        valid = valid and isinstance(data, str | None)
    except (ValueError, TypeError, KeyError, UserError, RecursionError) as error:
        raise UserError(f"{where}: no learning curve ({error})") from None
    if not valid:
        raise UserError(f"{where}: not increasing steps with a possible number for each")
    return SeedCurve(config, data, *series)


def _are_valid(steps: list, losses: list, accuracies: list) -> bool:
    """Whether these are steps that increase, with finite losses and accuracies within 0 to 1."""
    numbers = all(map(is_number, [*losses, *accuracies]))
    return (
        numbers
        and all(type(step) is int and step <= MAX_STEP for step in steps)
        and all(before < step for before, step in itertools.pairwise([0, *steps]))
        and all(0 <= accuracy <= 1 for accuracy in accuracies)
    )


if __name__ == "__main__":
    run(main)
