"""Checkpoints of the whole training state; the two latest are kept, damaged ones are skipped.

Orbax writes them and puts them in place by renaming. It notices a truncated file but not a flipped
bit, so the sha256 of every file of a finished checkpoint is written beside it and compared before
it is restored. A checkpoint without these hashes was not finished and does not count.
"""

import json
import os
import pathlib
import sys
from typing import Any, NamedTuple

import orbax.checkpoint as ocp

from lra.data.prepared import file_sha256
from lra.errors import UserError
from lra.files import write_atomically
from lra.state import TrainState

KEPT = 2


class Progress(NamedTuple):
    """What a checkpoint holds besides the arrays.

    Attributes:
        step: training steps made.
        evaluated: the step whose evaluation is the last one done.
        wall_seconds: of all processes of this run so far.
        train_seconds: of them, in training calls, compilation aside.
        train_examples: examples seen in `train_seconds`, summed over the seeds.
    """

    step: int = 0
    evaluated: int = 0
    wall_seconds: float = 0.0
    train_seconds: float = 0.0
    train_examples: int = 0


class Checkpoints:
    """The checkpoints in a folder, numbered in the order of saving."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder.resolve()
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=KEPT, create=True, enable_async_checkpointing=False
            ),
            item_names=("state", "progress"),
        )

    def save(self, state: TrainState, progress: Progress) -> None:
        """Saves; the checkpoint counts once this returns."""
        number = max(self._manager.all_steps(), default=0) + 1
        for unfinished in self._manager.all_steps():
            # Would count among those kept, and push out one that can be restored.
            if not self._hashes(unfinished).exists():
                self._manager.delete(unfinished)
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), progress=ocp.args.JsonSave(progress._asdict())
        )
        self._manager.save(number, args=items)
        self._manager.wait_until_finished()
        write_atomically(self._hashes(number), json.dumps(_hash_files(self._folder / str(number))))
        for path in self._folder.glob("*.sha256.json"):
            if not (self._folder / path.name.partition(".")[0]).exists():
                path.unlink(missing_ok=True)

    def restore(self, abstract_state: TrainState) -> tuple[TrainState, Progress] | None:
        """The latest undamaged checkpoint, None where there is none at all.

        Raises:
            UserError: there are checkpoints and every one is damaged.
        """
        damaged = False
        for number in sorted(self._manager.all_steps(), reverse=True):
            reason = self._damage(number)
            if reason is None:
                items = ocp.args.Composite(
                    state=ocp.args.StandardRestore(abstract_state),
                    progress=ocp.args.JsonRestore(),
                )
                restored = self._manager.restore(number, args=items)
                return restored.state, Progress(**restored.progress)
            if reason:
                damaged = True
                print(f"checkpoint {self._folder / str(number)}: {reason}", file=sys.stderr)
        if damaged:
            raise UserError(
                f"no undamaged checkpoint in {self._folder}; remove the workdir to start again"
            )
        return None

    def close(self) -> None:
        """Releases what the manager holds."""
        self._manager.close()

    def _hashes(self, number: int) -> pathlib.Path:
        return self._folder / f"{number}.sha256.json"

    def _damage(self, number: int) -> str | None:
        """Why a checkpoint cannot be used: '' when it was never finished, None when it can."""
        try:
            expected = json.loads(self._hashes(number).read_text())
        except FileNotFoundError:
            return ""
        except ValueError:
            return "its list of hashes is damaged, the one before is taken"
        found = _hash_files(self._folder / str(number))
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                return f"{name} is damaged or missing, the checkpoint before is taken"
        return None


def _hash_files(folder: pathlib.Path) -> dict[str, Any]:
    return {
        os.fspath(path.relative_to(folder)): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
