"""Rows of a finished run: accuracies, costs and environment."""

import pathlib
from typing import Any

import numpy as np
from ml_collections import config_dict

from lra import environment, records
from lra.checkpoints import Progress
from lra.data.prepared import Prepared
from lra.errors import UserError
from lra.evaluation_run import Evaluation
from lra.protocol import overrides_of, protocol_of
from lra.row import SEPARATOR, Row, key, make_key
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
    facts: dict[str, Any],
) -> list[Row]:
    """Make one row per seed.

    Args:
        trainer: Trainer of the run.
        prepared: Data that the run was trained on.
        state: State after the last step.
        progress: Steps, time and memory over all processes, and the devices of the last one.
        evaluations: Evaluations of the best and of the last parameters on the test set; empty if
            every seed diverged.
        facts: Content of run.json, as `Workdir.load_facts` returns it.
    """
    common = _common_fields(trainer, prepared, state, progress, facts)
    per_seed = trainer.fetch((state.diverged_step, state.best.val_accuracy, state.best.step))
    if all(per_seed[0] >= 0):
        # Steps up to the last divergence, not all those dispatched before it was noticed. Steps
        # count from 0, and the effect of the last update is noticed only after it.
        common["steps"] = min(int(max(per_seed[0])) + 1, progress.step)
    rows = []
    for index, seed in enumerate(trainer.config.seeds):
        diverged_step, val_accuracy, best_step = (values[index] for values in per_seed)
        outcome: dict[str, Any] = {"status": "diverged", "diverged_step": int(diverged_step)}
        if diverged_step < 0:
            best, last = evaluations
            outcome = {
                "status": "ok",
                "diverged_step": None,
                "test_accuracy": float(best.accuracy[index]),
                "test_accuracy_last": float(last.accuracy[index]),
                "val_accuracy": _as_float64(val_accuracy, trainer.num_examples("validation")),
                "best_step": int(best_step),
            }
        rows.append(Row(seed=seed, **outcome, **common))
    return rows


def status_of_complete(
    folder: Workdir, config: config_dict.ConfigDict, prepared: Prepared
) -> int | None:
    """Exit status of a run that is complete, that is, has its rows; None if it is not.

    Prints a line if it is complete.

    Raises:
        UserError: If the rows are damaged or some seeds are missing or, in a folder without
            config.json, if they belong to another run.
    """
    if not folder.rows.exists():
        return None
    rows = read_rows(folder.rows, config.seeds)
    if not folder.config.exists():
        _check_same(folder.rows, rows, config, prepared)
    diverged = all(row.status == "diverged" for row in rows)
    made_by, now = rows[0].commit or "unknown", environment.commit()
    other = "" if now in made_by.split(SEPARATOR) else f", by commit {made_by} (now {now})"
    print(f"{folder.rows} is complete{other}: nothing to do")
    return STATUS_ALL_DIVERGED if diverged else 0


def _check_same(
    path: pathlib.Path, rows: list[Row], config: config_dict.ConfigDict, prepared: Prepared
) -> None:
    """Raise UserError unless the rows are of this configuration and these data."""
    run = config.task, config.model.attention.name, overrides_of(config)
    protocol, data = protocol_of(config), prepared.manifest["data"]
    for row in rows:
        same = key(row) == make_key(*run, row.seed, protocol, data)
        if not same or row.data_sha256 != prepared.sha256:
            raise UserError(
                f"{path} has rows of another configuration or other data; choose another --workdir"
            )


def read_rows(path: pathlib.Path, seeds: tuple[int, ...]) -> list[Row]:
    """Read the rows of a finished run, which are written all at once.

    Raises:
        UserError: If the file is damaged or, as a truncated copy, lacks rows of some `seeds`.
    """
    rows = records.read(path, repair=False)
    if {row.seed for row in rows} != set(seeds):
        raise UserError(
            f"{path} has the rows of {len(rows)} of {len(seeds)} seeds; move that file away, then "
            "the same command makes its rows anew"
        )
    return rows


def _as_float64(accuracy: np.float32, total: int) -> float:
    """Recover correct answers / `total` in float64 from its value in float32 (0.357 again)."""
    return round(float(accuracy) * total) / total


def _common_fields(
    trainer: Trainer,
    prepared: Prepared,
    state: TrainState,
    progress: Progress,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Fields that the rows of all seeds share."""
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
        "deterministic": facts["deterministic"],
        # For a single device kind, the name alone: its number is in `num_devices`.
        "device": facts["device"] if SEPARATOR in facts["device"] else progress.device,
        "num_devices": progress.num_devices,
        "seeds_in_program": len(config.seeds),
        "examples_per_second": speed,
        "peak_memory_mb": progress.peak_memory_mb or None,
        "wall_seconds": progress.wall_seconds,
        "config": flatten(config),
        "config_overrides": overrides_of(config),
        "commit": facts["commit"],
        "versions": facts["versions"],
    }
