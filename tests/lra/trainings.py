"""Trainers of tests, and what a training leaves in its folder."""

import dataclasses

import jax
import numpy as np

from lra import arrays, records, sharding
from lra.checkpoints import Checkpoints
from lra.data import prepared
from lra.restored import restore_workdir
from lra.settings import flatten
from lra.state import abstract_run
from lra.tasks import get_task
from lra.trainer import Trainer

# What a second run may do differently.
TIMES = {"wall_seconds": None, "examples_per_second": None, "peak_memory_mb": None, "finished": ""}
_SHAPES: dict = {}  # of states, by configuration and length


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
    state, progress = checkpoints.restore(shapes_of_state(config, data_dir))
    checkpoints.close()
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)], progress


def shapes_of_state(config, data_dir):
    """The shapes of a run's state, on one device; without a trainer, which would trace more."""
    length = arrays.padded_length(prepared.load(data_dir, config.task))
    settings = flatten(config) | {"seeds": len(config.seeds)}
    key = (repr(sorted(settings.items())), length)
    if key not in _SHAPES:
        _SHAPES[key] = abstract_run(config, get_task(config.task), length)[1]
    place = sharding.copy_on_every_host()
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), _SHAPES[key]
    )


def assert_same_bits(one, other):
    for a, b in zip(one, other, strict=True):
        assert a.tobytes() == b.tobytes()


def restored_with_other_last_parameters(workdir):
    """As a run is restored whose last parameters are far from its best."""
    restored = restore_workdir(workdir, splits=("validation", "test"))
    last = jax.tree.map(lambda x: -x, restored.state.params)
    return restored._replace(state=restored.state._replace(params=last))
