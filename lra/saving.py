"""Saving of a run: what belongs together in its folder, and when it is written."""

import time

from lra import environment, hosts
from lra.checkpoints import Checkpoints, Progress
from lra.evaluation_files import SavedEvaluations
from lra.pace import SaveTimes
from lra.state import TrainState
from lra.trainer import Trainer
from lra.workdir import Workdir


class Saver:
    """Saves state, progress and unfinished evaluations of a run, and restores them.

    All hosts must call the methods together, other than those that only note something.

    Args:
        trainer: Trainer of the run.
        folder: Folder of the run.
        started: Reading of `time.monotonic` at the start of the process.

    Attributes:
        evaluations: Evaluations whose results are not in a checkpoint yet.
        progress: Progress of the run; its step, wall time and memory are those before this process
            (`progress_at` has the present ones).
        has_worked: Whether this process has made a call.
    """

    def __init__(self, trainer: Trainer, folder: Workdir, started: float):
        self._trainer, self._folder, self._started = trainer, folder, started
        self._checkpoints = Checkpoints(folder.checkpoints)
        self._times = SaveTimes(trainer.config.train.checkpoint_seconds)
        self.evaluations = SavedEvaluations(trainer, folder.evaluations)
        self.progress = Progress()
        self.has_worked, self._has_saved, self._is_first = False, False, True

    def restore(self) -> TrainState | None:
        """Restore the latest checkpoint and its progress; None if there is none.

        Evaluations saved with a later checkpoint, which is lost or damaged, are removed.

        Raises:
            UserError: As `Checkpoints.restore` does.
        """
        restored = self._checkpoints.restore(self._trainer.abstract_state())
        # Evaluations belong to the checkpoint that they were saved with.
        if restored is None or self._checkpoints.any_damaged():
            self.evaluations.discard()
        if restored is None:
            return None
        self._is_first = False
        state, self.progress = restored
        return state

    def note_work(self) -> None:
        """Note, before each call, that there is something new to save."""
        if not self.has_worked:
            self.has_worked = True
            self.progress = self.progress.going_on_with(
                environment.device_name(), self._trainer.num_devices
            )

    def note_training(self, examples: int, seconds: float) -> None:
        """Count a training call in which nothing was compiled: `examples`, over all seeds."""
        self.progress = self.progress._replace(
            train_seconds=self.progress.train_seconds + seconds,
            train_examples=self.progress.train_examples + examples,
        )

    def note_evaluation(self, step: int) -> None:
        """Note that the validation after `step` is in the state, and needs no file any more."""
        self.progress = self.progress._replace(evaluated=step)
        self.evaluations.forget()

    def save_if_due(self, state: TrainState, step: int, call_seconds: float) -> None:
        """Save if that becomes due during the next call, of about `call_seconds`."""
        if hosts.any_of(self._times.due(call_seconds)):
            self.save(state, step)
            self._times.saved()

    def save(self, state: TrainState, step: int) -> None:
        """Save the run after `step` steps, unless an earlier process has done everything.

        Raises:
            UserError: If no space is left.
        """
        if not (self.has_worked or self._is_first):
            return
        if not self._has_saved:
            hosts.on_main(lambda: self._folder.note_start(first=self._is_first))
            self._has_saved = True
        self._checkpoints.save(state, self.progress_at(step))
        self.evaluations.save()

    def progress_at(self, step: int) -> Progress:
        """Progress up to now, after `step` steps."""
        wall = self.progress.wall_seconds + time.monotonic() - self._started
        peak = self.progress.peak_memory_mb
        if self.has_worked:
            peak = max(peak, hosts.most(environment.peak_memory_mb()))
        return self.progress._replace(step=step, wall_seconds=wall, peak_memory_mb=peak)

    def close(self) -> None:
        """Release the resources of the checkpoints."""
        self._checkpoints.close()
