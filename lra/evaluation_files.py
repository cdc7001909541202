"""Evaluations saved in a run's folder, resumed where an earlier start left them.

An evaluation may take longer than a start lives. What is done of it is saved with each checkpoint,
as logits, e.g. in `evaluations/validation-50.npz`. A file belongs to the parameters of the
checkpoint that it was saved with: where that one is lost, training from an earlier one leads to the
same parameters only up to rounding if the devices are others.
"""

import collections
import io
import pathlib
import shutil
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from lra import hosts
from lra.disk_space import room_for
from lra.evaluation_run import Evaluation, EvaluationRun
from lra.files import write_atomically
from lra.pace import Pace
from lra.stderr import say
from lra.trainer import Trainer

_SUFFIX = ".npz"
_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class SavedEvaluations:
    """The evaluations whose results are not in a checkpoint yet, by name.

    Args:
        trainer: of the run.
        folder: where to save them.
    """

    def __init__(self, trainer: Trainer, folder: pathlib.Path):
        self._trainer, self._folder = trainer, folder
        self._runs: dict[str, EvaluationRun] = {}
        # By split: each has its own number of batches, so its own program, to be compiled first.
        self._paces: dict[str, Pace] = collections.defaultdict(Pace)

    def evaluate(
        self, name: str, params: Any, rest: Any, split: str, before_call: Callable[[float], None]
    ) -> Evaluation:
        """Evaluates what earlier starts have not already evaluated.

        Args:
            name: of the evaluation, the same at every start.
            params: trained arrays, per seed.
            rest: untrained arrays, per seed.
            split: of the data.
            before_call: told the expected seconds before each call; may raise, and may `save`.
        """
        run = self._trainer.evaluation(params, rest, split)
        self._resume(name, run)
        self._runs[name] = run
        return run.to_the_end(self._paces[split], before_call)

    def forget(self) -> None:
        """Forgets the evaluations so far: the next checkpoint holds their results in the state."""
        self._runs = {}

    def discard(self) -> None:
        """Removes what earlier starts have saved."""
        hosts.on_main(lambda: shutil.rmtree(self._folder, ignore_errors=True))

    def save(self) -> None:
        """Writes what is done and not forgotten; removes all other files.

        Raises:
            UserError: no space left.
        """
        arrays = {
            name: {
                "done": np.int64(run.done),
                "order": run.order,
                "logits": self._trainer.fetch(run.logits),
            }
            for name, run in self._runs.items()
            if run.done
        }
        hosts.on_main(lambda: self._write(arrays))

    def _write(self, arrays: dict[str, dict[str, np.ndarray]]) -> None:
        if not arrays and not self._folder.exists():
            return
        self._folder.mkdir(exist_ok=True)
        for name, values in arrays.items():
            content = io.BytesIO()
            np.savez(content, **values)
            with room_for("an evaluation", self._folder, content.tell()):
                write_atomically(self._path(name), content.getvalue())
        for path in self._folder.iterdir():
            if path.name.removesuffix(_SUFFIX) not in arrays:
                path.unlink()
        if not arrays:
            self._folder.rmdir()

    def _resume(self, name: str, run: EvaluationRun) -> None:
        done, logits = self._read(name, run)
        # Hosts may see the file at different times: all go on from the least that any of them has.
        least = hosts.least(done)
        if least:
            run.resume(logits, least)

    def _read(self, name: str, run: EvaluationRun) -> tuple[int, np.ndarray | None]:
        """Batches done and logits of `name`; 0 and None where there is nothing that fits."""
        path = self._path(name)
        if not path.exists():
            return 0, None
        try:
            with open(path, "rb") as file, np.load(file) as arrays:
                done, logits = int(arrays["done"]), arrays["logits"]
                order = arrays["order"]
        except _DAMAGE:
            say(f"{path} is damaged: this evaluation begins again")
            return 0, None
        # On other devices a split may be divided into other batches, or taken in another order.
        if logits.shape != run.logits.shape or logits.dtype != run.logits.dtype:
            return 0, None
        if not np.array_equal(order, run.order):
            return 0, None
        return done, logits

    def _path(self, name: str) -> pathlib.Path:
        return self._folder / f"{name}{_SUFFIX}"
