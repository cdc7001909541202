"""Turns a finished training into its rows: accuracies, costs, and what it ran on."""

import pathlib
from typing import Any

import numpy as np
from ml_collections import config_dict

from lra import records
from lra.checkpoints import Progress
from lra.data.prepared import Prepared
from lra.errors import UserError
from lra.evaluation_run import Evaluation
from lra.protocol import overrides_of, protocol_of
from lra.records import Row
from lra.row import SEPARATOR
from lra.settings import flatten
from lra.state import TrainState
from lra.trainer import Trainer
from lra.workdir import Workdir

STATUS_ALL_DIVERGED = 1


def make_rows(
    trainer: Trainer,
    prepared: Prepared,
    state: TrainState,
    progress: Progress,
    evaluations: list[Evaluation],
    run: dict[str, Any],
) -> list[Row]:
    """One row a seed.

    Args:
        trainer: of the run.
        prepared: the data it was trained on.
        state: after the last step.
        progress: time, memory and steps spent, over all starts, and the devices of the last.
        evaluations: on the test set, of the best and of the last parameters; none where every
            seed diverged.
        run: what its folder says, `Workdir.load_run`.
    """
    common = _common(trainer, prepared, state, progress, run)
    chosen = trainer.fetch((state.diverged_step, state.best.val_accuracy, state.best.step))
    if all(chosen[0] >= 0):
        # Steps up to the last divergence, not all those dispatched before it was noticed. Steps
        # count from 0, and the effect of the last update is noticed only after it.
        common["steps"] = min(int(max(chosen[0])) + 1, progress.step)
    rows = []
    for index, seed in enumerate(trainer.config.seeds):
        diverged_step, val_accuracy, best_step = (values[index] for values in chosen)
        accuracies: dict[str, Any] = {"status": "diverged", "diverged_step": int(diverged_step)}
        if diverged_step < 0:
            best, last = evaluations
            accuracies = {
                "status": "ok",
                "diverged_step": None,
                "test_accuracy": float(best.accuracy[index]),
                "test_accuracy_last": float(last.accuracy[index]),
                "val_accuracy": _as_float64(val_accuracy, trainer.num_examples("validation")),
                "best_step": int(best_step),
            }
        rows.append(Row(seed=seed, **accuracies, **common))
    return rows


def status_of_complete(
    folder: Workdir, config: config_dict.ConfigDict, prepared: Prepared
) -> int | None:
    """The exit status of a run whose rows are there, which it says; None if they are not.

    Raises:
        UserError: rows that are damaged or not of all seeds or, in a folder that does not say what
            run it holds, of another run.
    """
    if not folder.rows.exists():
        return None
    rows = read_rows(folder.rows, config.seeds)
    if not folder.config.exists():
        _check_same(folder.rows, rows, config, prepared)
    diverged = all(row.status == "diverged" for row in rows)
    print(f"{folder.rows} is complete: nothing to do")
    return STATUS_ALL_DIVERGED if diverged else 0


def _check_same(
    path: pathlib.Path, rows: list[Row], config: config_dict.ConfigDict, prepared: Prepared
) -> None:
    """Raises UserError if rows are not of this configuration and these data."""
    run = config.task, config.model.attention.name, overrides_of(config)
    marks = protocol_of(config), prepared.manifest["data"]
    for row in rows:
        same = records.key(row) == records.make_key(*run, row.seed, *marks)
        if not same or row.data_sha256 != prepared.sha256:
            raise UserError(
                f"{path} has rows of another configuration or other data; choose another --workdir"
            )


def read_rows(path: pathlib.Path, seeds: tuple[int, ...]) -> list[Row]:
    """The rows of a finished run, which are written all at once.

    Raises:
        UserError: a damaged file, or one without the rows of all `seeds`: a copy was cut short.
    """
    rows = records.read(path, repair=False)
    if {row.seed for row in rows} != set(seeds):
        raise UserError(
            f"{path} has the rows of {len(rows)} of {len(seeds)} seeds; move that file away, then "
            "the same command makes its rows anew"
        )
    return rows


def _as_float64(accuracy: np.float32, total: int) -> float:
    """The quotient of correct answers and `total` that a state holds in float32: 0.357 again."""
    return round(float(accuracy) * total) / total


def _common(
    trainer: Trainer,
    prepared: Prepared,
    state: TrainState,
    progress: Progress,
    run: dict[str, Any],
) -> dict[str, Any]:
    """What the rows of all seeds share."""
    config = trainer.config
    speed = None
    if progress.train_seconds:
        speed = progress.train_examples / progress.train_seconds
    return {
        "task": config.task,
        "attention": config.model.attention.name,
        "protocol": protocol_of(config),
        "data": prepared.manifest["data"],
        "data_sha256": prepared.sha256,
        "val_is_test": not config.data.holdout and "validation" in prepared.manifest["aliases"],
        "steps": progress.step,
        "params": trainer.num_params(state),
        "dtype": config.dtype,
        "matmul_precision": config.matmul_precision,
        "deterministic": run["deterministic"],
        # The name alone where its number stands beside it, in `num_devices`.
        "device": run["device"] if SEPARATOR in run["device"] else progress.device,
        "num_devices": progress.num_devices,
        "seeds_in_program": len(config.seeds),
        "examples_per_second": speed,
        "peak_memory_mb": progress.peak_memory_mb,
        "wall_seconds": progress.wall_seconds,
        "config": flatten(config),
        "config_overrides": overrides_of(config),
        "commit": run["commit"],
        "versions": run["versions"],
    }
