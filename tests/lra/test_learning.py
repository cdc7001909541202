"""Every attention learns every task of the table, in miniature: the loss falls."""

import pytest

from configs.default import ATTENTIONS
from configs.sweeps.table import TASKS as TABLE
from lra.data import prepared
from lra.tasks import TASKS
from lra.trainer import Trainer


def pairs():
    """Each task and each attention once in the quick suite, all their pairs in the slow one."""
    for task in TABLE:
        for attention in ATTENTIONS:
            quick = task == "listops" or attention == "standard"
            yield pytest.param(task, attention, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("task", "attention"), pairs())
def test_the_loss_falls(tiny_config, data_dir, task, attention):
    config = tiny_config(task, attention, "train.steps=60", "mesh.seed=1", "mesh.data=1")
    trainer = Trainer(config, TASKS[task], prepared.load(data_dir, task), splits=("train",))
    state, first = trainer.train(trainer.init(), 0, 5)
    state, _ = trainer.train(state, 5, 45)
    _, last = trainer.train(state, 50, 10)
    assert last.loss[0] < first.loss[0] - 0.1
