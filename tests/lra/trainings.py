"""Trainers of tests, and what a training leaves in its folder."""

import dataclasses

import jax
import numpy as np

from lra import records
from lra.checkpoints import Checkpoints
from lra.data import prepared
from lra.restored import restore_workdir
from lra.trainer import Trainer

# What a second run may do differently.
TIMES = {"wall_seconds": None, "examples_per_second": None, "peak_memory_mb": None, "finished": ""}


def make_trainer(config, data_dir, **options):
    """The trainer of a configuration."""
    return Trainer(config, prepared.load(data_dir, config.task), **options)


def rows_of(workdir):
    """The rows of a run without its times."""
    rows = records.read(workdir / "rows.jsonl")
    assert all(row.wall_seconds and row.finished for row in rows)
    return [dataclasses.replace(row, **TIMES) for row in rows]


def final_state(config, data_dir, workdir):
    """The arrays of the latest checkpoint, and its progress."""
    checkpoints = Checkpoints(workdir / "checkpoints")
    state, progress = checkpoints.restore(make_trainer(config, data_dir).abstract_state())
    checkpoints.close()
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)], progress


def assert_same_bits(one, other):
    for a, b in zip(one, other, strict=True):
        assert a.tobytes() == b.tobytes()


def restored_with_other_last_parameters(workdir):
    """As a run is restored whose last parameters are far from its best."""
    restored = restore_workdir(workdir, splits=("validation", "test"))
    last = jax.tree.map(lambda x: -x, restored.state.params)
    return restored._replace(state=restored.state._replace(params=last))
