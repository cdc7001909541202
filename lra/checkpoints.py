"""Checkpoints of the whole training state; the two latest are kept, damaged ones are skipped.

Orbax writes them and puts them in place by renaming. It notices a truncated file but not a flipped
bit, so the sha256 of every file of a finished checkpoint is written beside it and compared before
it is restored. A checkpoint without these hashes was not finished and does not count. Several hosts
write the arrays of one checkpoint together, into a folder that all of them see.
"""

import json
import os
import pathlib
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp

from lra import hosts
from lra.disk_space import room_for
from lra.errors import UserError
from lra.files import file_sha256, write_atomically
from lra.state import TrainState
from lra.stderr import say

KEPT = 2
_OVERHEAD_BYTES = 1 << 20  # of Orbax's own files


class Progress(NamedTuple):
    """What a checkpoint holds besides the arrays.

    Attributes:
        step: training steps made.
        evaluated: the step whose evaluation is the last one done.
        wall_seconds: summed over all processes of this run so far.
        train_seconds: of these, spent in training calls on `num_devices` of `device`, compilation
            and calls beside one excluded.
        train_examples: examples seen in `train_seconds`, summed over the seeds.
        peak_memory_mb: the maximum over all starts on `num_devices` of `device`.
        device: what the last start ran on.
        num_devices: how many of `device`.
    """

    step: int = 0
    evaluated: int = 0
    wall_seconds: float = 0.0
    train_seconds: float = 0.0
    train_examples: int = 0
    peak_memory_mb: float = 0.0
    device: str = ""
    num_devices: int = 0

    def going_on_with(self, device: str, num_devices: int) -> "Progress":
        """The progress for a new process; on other devices, speed and memory start afresh."""
        if (self.device, self.num_devices) == (device, num_devices):
            return self
        return self._replace(
            device=device,
            num_devices=num_devices,
            train_seconds=0.0,
            train_examples=0,
            peak_memory_mb=0.0,
        )


class Checkpoints:
    """The checkpoints in a folder, numbered in the order of saving."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder.resolve()
        self._damaged: set[int] = set()
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=KEPT, create=True, enable_async_checkpointing=False
            ),
            item_handlers={
                "state": ocp.StandardCheckpointHandler(),
                "progress": ocp.JsonCheckpointHandler(),
            },
        )

    @property
    def any_damaged(self) -> bool:
        """Whether `restore` has skipped a damaged checkpoint, and training goes back behind it."""
        return hosts.on_main(lambda: bool(self._damaged))

    def save(self, state: TrainState, progress: Progress) -> None:
        """Saves; the checkpoint counts once this returns.

        Raises:
            UserError: no space left; the checkpoints before remain.
        """
        number, unfinished = hosts.on_main(self._next_number)
        for other in unfinished:
            # It would count among those kept, and push out one that can be restored.
            self._manager.delete(other)
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), progress=ocp.args.JsonSave(progress._asdict())
        )
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) + _OVERHEAD_BYTES
        with room_for("a checkpoint", self._folder, size):
            self._manager.save(number, args=items)
            self._manager.wait_until_finished()
            hosts.on_main(lambda: self._write_hashes(number))

    def restore(self, abstract_state: TrainState) -> tuple[TrainState, Progress] | None:
        """The latest undamaged checkpoint, None where there is none at all.

        Raises:
            UserError: there are checkpoints and every one is damaged, or the latest has other
                arrays than `abstract_state`.
        """
        number = hosts.on_main(self._latest_undamaged)
        if number is None:
            return None
        items = ocp.args.Composite(
            state=ocp.args.StandardRestore(abstract_state), progress=ocp.args.JsonRestore()
        )
        try:
            self._check_shapes(number, abstract_state)
            restored = self._manager.restore(number, args=items)
        except ValueError as error:  # its files are as they were written
            raise UserError(
                f"checkpoint {self._folder / str(number)} has other arrays than this code trains; "
                "go on with the commit that run.json names, or choose another workdir"
            ) from error
        return restored.state, Progress(**restored.progress)

    def _check_shapes(self, number: int, abstract_state: TrainState) -> None:
        """Raises ValueError for other arrays, as Orbax does, but before reading any.

        It would leave the reading of the others to itself, to fail at the end of the process.
        """
        there = self._manager.item_metadata(number).state.tree
        found, wanted = (
            sorted(leaf.shape for leaf in jax.tree.leaves(tree)) for tree in (there, abstract_state)
        )
        if found != wanted:
            raise ValueError("arrays of other shapes")

    def close(self) -> None:
        """Releases what the manager holds."""
        self._manager.close()

    def _next_number(self) -> tuple[int, list[int]]:
        """The number to save under, and those of checkpoints never finished or found damaged."""
        for number in self._damaged:
            self._hashes(number).unlink(missing_ok=True)
        there = sorted(self._manager.all_steps())
        unfinished = [number for number in there if not self._hashes(number).exists()]
        return max(there, default=0) + 1, unfinished

    def _write_hashes(self, number: int) -> None:
        """Makes a checkpoint count; removes the hashes of those that are gone."""
        write_atomically(self._hashes(number), json.dumps(_hash_files(self._folder / str(number))))
        for path in self._folder.glob("*.sha256.json"):
            if not (self._folder / path.name.partition(".")[0]).exists():
                path.unlink(missing_ok=True)

    def _latest_undamaged(self) -> int | None:
        for number in sorted(self._manager.all_steps(), reverse=True):
            reason = self._damage(number)
            if reason is None:
                return number
            if reason:
                self._damaged.add(number)
                say(f"checkpoint {self._folder / str(number)}: {reason}")
        if self._damaged:
            raise UserError(
                f"no undamaged checkpoint in {self._folder}; remove the workdir to start again"
            )
        return None

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
