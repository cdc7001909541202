"""Partial evaluations saved in a run's folder and resumed by the next process.

An evaluation may take longer than a process may run. The logits computed so far are saved with each
checkpoint, e.g. in `evaluations/validation-50.npz`. A file belongs to the parameters of the
checkpoint that it was saved with. If that checkpoint is lost, the loop discards the file: training
again from an earlier one leads to the same parameters only up to rounding if the devices are
different, and from the start perhaps to others.
"""

import collections
import contextlib
import io
import pathlib
import zipfile
import zlib
from collections.abc import Callable, Collection

import numpy as np
from flax import nnx

from lra import hosts
from lra.disk_space import room_for
from lra.evaluation_run import Evaluation, EvaluationRun
from lra.files import write_atomically
from lra.pace import Pace
from lra.stderr import say
from lra.trainer import Trainer

_SUFFIX = ".npz"
# RuntimeError: a flipped bit may say that an array is encrypted or compressed in an unknown way.
_READ_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


class SavedEvaluations:
    """Named evaluations whose results are not in a checkpoint yet.

    Args:
        trainer: Trainer of the run.
        folder: Folder to save them in.
    """

    def __init__(self, trainer: Trainer, folder: pathlib.Path):
        self._trainer, self._folder = trainer, folder.resolve()  # which may be a link
        self._runs: dict[str, EvaluationRun] = {}
        # One for each split: the number of batches differs, and so does the program to compile.
        self._paces: dict[str, Pace] = collections.defaultdict(Pace)

    def evaluate(
        self,
        name: str,
        params: nnx.State,
        rest: nnx.State,
        split: str,
        before_call: Callable[[float], None],
    ) -> Evaluation:
        """Evaluate the batches that earlier processes have not evaluated.

        Args:
            name: Name of the evaluation, the same in every process.
            params: Trained arrays, [seeds, ...].
            rest: Untrained arrays, [seeds, ...].
            split: Name of the split.
            before_call: Function of the expected seconds of a call, called before each call; it may
                raise, and it may `save`.
        """
        run = self._trainer.new_evaluation(params, rest, split)
        self._resume(name, run)
        self._runs[name] = run
        return run.to_the_end(self._paces[split], before_call)

    def forget(self) -> None:
        """Drop the evaluations so far, whose results the next checkpoint has in its state."""
        self._runs = {}

    def discard(self) -> None:
        """Remove the files that earlier processes have saved."""
        hosts.on_main(lambda: self._remove_all_but(()))

    def save(self) -> None:
        """Write the batches done of every evaluation not forgotten; remove all other such files.

        Raises:
            UserError: If no space is left.
        """
        arrays = {
            name: {
                "done": np.asarray(run.done),
                "order": run.order,
                "logits": self._trainer.fetch(run.logits),
            }
            for name, run in self._runs.items()
            if run.done
        }
        hosts.on_main(lambda: self._write(arrays))

    def _write(self, arrays: dict[str, dict[str, np.ndarray]]) -> None:
        if arrays:
            self._folder.mkdir(exist_ok=True)
        for name, values in arrays.items():
            content = io.BytesIO()
            np.savez(content, **values)
            with room_for("an evaluation", self._folder, content.tell()):
                write_atomically(self._path(name), content.getvalue())
        self._remove_all_but(arrays)

    def _remove_all_but(self, names: Collection[str]) -> None:
        """Remove other evaluations and scratch files, and the folder if nothing is left in it."""
        for path in self._folder.glob(f"*{_SUFFIX}*"):
            if path.name.removesuffix(_SUFFIX) not in names and path.is_file():
                path.unlink()
        with contextlib.suppress(OSError):  # it is not there, or others keep something in it
            self._folder.rmdir()

    def _resume(self, name: str, run: EvaluationRun) -> None:
        done, logits = self._read(name, run)
        # Hosts may see the file at different times: all resume from the smallest count.
        least = hosts.least(done)
        if least:
            run.resume(logits, least)

    def _read(self, name: str, run: EvaluationRun) -> tuple[int, np.ndarray | None]:
        """Number of batches done and their logits; 0 and None if no file fits the evaluation."""
        path = self._path(name)
        if not path.exists():
            return 0, None
        try:
            with open(path, "rb") as file, np.load(file) as arrays:
                done, logits = int(arrays["done"]), arrays["logits"]
                order = arrays["order"]
        except _READ_ERRORS:
            say(f"{path} is damaged: this evaluation begins again")
            return 0, None
        # On other devices, a split may be divided into other batches or taken in another order.
        if logits.shape != run.logits.shape or logits.dtype != run.logits.dtype:
            return 0, None
        if not np.array_equal(order, run.order):
            return 0, None
        return done, logits

    def _path(self, name: str) -> pathlib.Path:
        return self._folder / f"{name}{_SUFFIX}"
