"""Checkpoints of the whole training state; the two latest are kept, damaged ones are skipped.

Orbax writes each checkpoint and commits it by a rename. It notices a truncated file but not a
flipped bit, so the sha256 of every file of a finished checkpoint is written beside it and verified
before it is restored. A checkpoint without these hashes is unfinished and does not count. Files
that others have put into its folder do not matter. Several hosts write the arrays of one checkpoint
together, into a folder that all of them see.
"""

import json
import os
import pathlib
from typing import NamedTuple

import jax
import orbax.checkpoint as ocp

from lra import hosts
from lra.disk_space import check_room, room_for
from lra.errors import UserError
from lra.files import file_sha256, write_atomically
from lra.state import TrainState
from lra.stderr import say
from lra.workdir import check_path

KEPT = 2
_HASHES = ".sha256.json"
_OVERHEAD_BYTES = 1 << 20  # for Orbax's own files


class Progress(NamedTuple):
    """What a checkpoint holds besides the arrays.

    Attributes:
        step: Number of training steps made.
        evaluated: Step of the latest validation.
        wall_seconds: Wall time, summed over all processes of this run so far, up to the last
            checkpoint of each.
        train_seconds: Time spent in training calls on `num_devices` of `device`, without calls that
            compile or run beside a compilation.
        train_examples: Number of examples seen in `train_seconds`, summed over the seeds.
        peak_memory_mb: Peak memory in 10^6 bytes, over all processes on `num_devices` of `device`;
            0 if it is not known.
        device: Name of the device that the latest process ran on.
        num_devices: Number of such devices.
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
        """Progress of a new process; on other devices, speed and memory are measured anew."""
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
    """Checkpoints in a folder, numbered in the order of saving."""

    def __init__(self, folder: pathlib.Path):
        """Open the folder; raise UserError for a path that `check_path` refuses."""
        check_path(folder.parent)
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

    def any_damaged(self) -> bool:
        """Whether `restore` skipped a damaged checkpoint, so that training repeats some steps.

        All hosts must ask together.
        """
        return hosts.on_main(lambda: bool(self._damaged))

    def save(self, state: TrainState, progress: Progress) -> None:
        """Save a checkpoint, which is finished when this returns.

        Raises:
            UserError: If no space is left; earlier checkpoints remain.
        """
        number, unfinished = hosts.on_main(self._next_number)
        for other in unfinished:
            # Orbax would count it among those to keep, and remove one that can be restored.
            self._manager.delete(other)
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), progress=ocp.args.JsonSave(progress._asdict())
        )
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) + _OVERHEAD_BYTES
        room = "a checkpoint", self._folder, size
        hosts.on_every(lambda: check_room(*room))
        with room_for(*room):
            self._manager.save(number, args=items)
            self._manager.wait_until_finished()
            hosts.on_main(lambda: self._write_hashes(number))

    def restore(self, abstract_state: TrainState) -> tuple[TrainState, Progress] | None:
        """Restore the latest undamaged checkpoint; None if there is no finished checkpoint.

        Raises:
            UserError: If all finished checkpoints are damaged, or the latest is of other code: its
                arrays do not match `abstract_state`, or it has other fields than `Progress`.
        """
        number = hosts.on_main(self._latest_undamaged)
        if number is None:
            return None
        items = ocp.args.Composite(
            state=ocp.args.StandardRestore(abstract_state), progress=ocp.args.JsonRestore()
        )

        def read() -> tuple[TrainState, Progress]:
            try:
                self._check_shapes(number, abstract_state)
                restored = self._manager.restore(number, args=items)
            except ValueError as error:  # not damage, since the hashes match
                raise self._of_other_code(number, "arrays than this code trains") from error
            try:
                return restored.state, Progress(**restored.progress)
            except TypeError as error:
                raise self._of_other_code(number, "fields than this code knows") from error

        return hosts.on_every(read)

    def _of_other_code(self, number: int, others: str) -> UserError:
        return UserError(
            f"checkpoint {self._folder / str(number)} has other {others}; go on with the commit "
            "that run.json names, or choose another workdir"
        )

    def _check_shapes(self, number: int, abstract_state: TrainState) -> None:
        """Raise ValueError if arrays have other shapes, before any of them is read.

        Orbax raises it too, but leaves the other arrays to background reads, which then fail at the
        end of the process.
        """
        stored = self._manager.item_metadata(number).state.tree
        stored_shapes, expected_shapes = (
            sorted(leaf.shape for leaf in jax.tree.leaves(tree))
            for tree in (stored, abstract_state)
        )
        if stored_shapes != expected_shapes:
            raise ValueError("arrays of other shapes")

    def close(self) -> None:
        """Release the resources of Orbax's checkpoint manager."""
        self._manager.close()

    def _next_number(self) -> tuple[int, list[int]]:
        """Number of the next checkpoint, and numbers of unfinished and damaged checkpoints."""
        for number in self._damaged:
            self._hashes_path(number).unlink(missing_ok=True)
        numbers = sorted(self._manager.all_steps())
        return max(numbers, default=0) + 1, [n for n in numbers if not self._is_finished(n)]

    def _write_hashes(self, number: int) -> None:
        """Write the hashes that finish a checkpoint; remove those of deleted checkpoints."""
        hashes = json.dumps(_hash_files(self._folder / str(number)))
        write_atomically(self._hashes_path(number), hashes)
        for path in self._folder.glob(f"*{_HASHES}"):
            if not (self._folder / path.name.removesuffix(_HASHES)).exists():
                path.unlink(missing_ok=True)

    def _latest_undamaged(self) -> int | None:
        for number in sorted(filter(self._is_finished, self._manager.all_steps()), reverse=True):
            damage = self._damage(number)
            if damage is None:
                return number
            self._damaged.add(number)
            say(f"checkpoint {self._folder / str(number)}: {damage}: skipped")
        if self._damaged:
            raise UserError(
                f"no undamaged checkpoint in {self._folder}; bring back its files from a copy, or "
                "remove the workdir to start again"
            )
        return None

    def _hashes_path(self, number: int) -> pathlib.Path:
        return self._folder / f"{number}{_HASHES}"

    def _is_finished(self, number: int) -> bool:
        return self._hashes_path(number).exists()

    def _damage(self, number: int) -> str | None:
        """What is damaged or missing of a finished checkpoint; None if it is intact."""
        try:
            expected = json.loads(self._hashes_path(number).read_text())
        except (ValueError, RecursionError):
            expected = None
        if not isinstance(expected, dict):
            return "its list of hashes is damaged"
        folder = self._folder / str(number)
        for name, sha256 in sorted(expected.items()):
            path = folder / name
            if not path.is_file() or file_sha256(path) != sha256:
                return f"{name} is damaged or missing"
        return None


def finished(folder: pathlib.Path) -> set[str]:
    """Return the names of the finished checkpoints in a folder, damaged or not."""
    names = (path.name.removesuffix(_HASHES) for path in folder.glob(f"*{_HASHES}"))
    return {name for name in names if (folder / name).is_dir()}


def _hash_files(folder: pathlib.Path) -> dict[str, str]:
    return {
        os.fspath(path.relative_to(folder)): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
