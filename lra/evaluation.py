"""Evaluates what a training left in its folder."""

import io
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lra import environment, hosts
from lra.checkpoints import Checkpoints
from lra.data import prepared as prepared_data
from lra.errors import UserError
from lra.evaluation_run import Evaluation, EvaluationRun
from lra.files import write_atomically
from lra.pace import Pace
from lra.state import TrainState
from lra.tasks import get_task
from lra.trainer import Trainer
from lra.workdir import Workdir


class Restored(NamedTuple):
    """A run as its folder has it: what it was trained on, and the state after `step` steps."""

    prepared: prepared_data.Prepared
    trainer: Trainer
    state: TrainState
    step: int


def evaluate_workdir(
    workdir: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    split: str = "test",
    predictions: str | os.PathLike | None = None,
) -> int:
    """Prints the accuracy of each seed's best and last parameters; returns the exit status, 0.

    Args:
        workdir: of a run, complete or not.
        data_dir: folder of the prepared data; None for the one it was trained on.
        split: of the data.
        predictions: an .npz file to write, with `index`, `label`, `seeds`, `diverged` and `logits`.

    Raises:
        UserError: no run or checkpoint, other data than the run's, predictions before the first
            validation, a file that cannot be written.
    """
    _, trainer, state, step = restore_workdir(workdir, data_dir=data_dir, splits=(split,))
    if predictions is not None and np.any(state.alive & (state.best.val_accuracy < 0)):
        raise UserError(
            f"no predictions: {workdir} has no validation yet (step {step}), so no best parameters "
            "that they could be of; let it train on"
        )
    best = evaluate(trainer, state.best.params, state.best.rest, split)
    last = evaluate(trainer, state.params, state.rest, split)
    for index, seed in enumerate(trainer.config.seeds):
        if not state.alive[index]:
            print(f"seed {seed}: diverged at step {int(state.diverged_step[index])}, no accuracy")
            continue
        told, of_last = f"seed {seed}: {split} accuracy", f"{last.accuracy[index]:.4f} with"
        if state.best.val_accuracy[index] < 0:
            print(f"{told} {of_last} the parameters of step {step}; no validation yet")
            continue
        print(
            f"{told} {best.accuracy[index]:.4f} with the parameters of step "
            f"{int(state.best.step[index])}, {of_last} those of step {step}"
        )
    if predictions is not None:
        labels, alive = trainer.labels(split), trainer.fetch(state.alive)
        _write_predictions(pathlib.Path(predictions), trainer.config.seeds, alive, labels, best)
    return 0


def restore_workdir(
    workdir: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    splits: tuple[str, ...] = (),
) -> Restored:
    """The latest state of a run, on whatever devices there are here.

    Args:
        workdir: of a run, complete or not.
        data_dir: folder of the prepared data; None for the one it was trained on.
        splits: those the trainer is to hold on the devices.

    Raises:
        UserError: no run or checkpoint, other data than the run's.
    """
    environment.check_device()
    folder = Workdir(workdir)
    config, run = folder.load_config(), folder.load_run()
    task = get_task(config.task)
    prepared = prepared_data.load(data_dir or run["data_dir"], task.name)
    if prepared.sha256 != run["data_sha256"]:
        raise UserError(f"{prepared.root} is not the data that {folder.root} was trained on")
    with config.unlocked():
        config.mesh.update(seed=0, data=0)  # whatever devices there are here
    trainer = Trainer(config, task, prepared, splits=splits)
    return Restored(prepared, trainer, *_restore(folder, trainer))


def evaluate(trainer: Trainer, params: Any, rest: Any, split: str) -> Evaluation:
    """Evaluates every example of a split, once, for all seeds.

    Args:
        trainer: holds the split.
        params: trained arrays, per seed.
        rest: untrained arrays, per seed.
        split: of the data.
    """
    run = trainer.evaluation(params, rest, split)
    carry_out(run, Pace())
    return run.result()


def carry_out(
    run: EvaluationRun, pace: Pace, before_call: Callable[[float], None] = lambda seconds: None
) -> None:
    """Evaluates what remains of a split.

    Args:
        run: the evaluation.
        pace: what earlier evaluations taught about the length of calls.
        before_call: told the expected seconds before each call; may raise to end it.
    """
    while run.remaining:
        before_call(pace.call_seconds)
        count = hosts.least(pace.next(run.remaining))
        begun = time.monotonic()
        run.advance(count)
        pace.measured(count, time.monotonic() - begun)


def _restore(folder: Workdir, trainer: Trainer) -> tuple[TrainState, int]:
    restored = None
    if folder.checkpoints.is_dir():
        checkpoints = Checkpoints(folder.checkpoints)
        restored = checkpoints.restore(trainer.abstract_state())
        checkpoints.close()
    if restored is None:
        raise UserError(f"no checkpoint in {folder.root} yet; train.py writes them")
    state, progress = restored
    return state, progress.step


def _write_predictions(
    path: pathlib.Path,
    seeds: tuple[int, ...],
    alive: np.ndarray,
    labels: np.ndarray,
    evaluation: Evaluation,
) -> None:
    arrays = {
        "index": np.arange(len(labels)),
        "label": labels,
        "seeds": np.asarray(seeds),
        "diverged": ~alive,
        "logits": evaluation.logits,
    }
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    try:
        write_atomically(path, content.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
