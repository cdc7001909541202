"""Every attention learns every task of the table, in miniature: the loss falls."""

import pytest

from configs.default import ATTENTIONS
from configs.sweeps.table import TASKS as TABLE

# Sequences and pairs in the quick suite; every task with each attention in the slow one.
QUICK = ("listops", "retrieval")
PAIRS = [
    pytest.param(
        task,
        attention,
        marks=() if attention == "standard" and task in QUICK else pytest.mark.slow,
    )
    for task in TABLE
    for attention in ATTENTIONS
]


@pytest.mark.parametrize(("task", "attention"), PAIRS)
def test_the_loss_falls(tiny_trainer, task, attention):
    trainer = tiny_trainer(task, attention, "train.steps=60", splits=("train",))
    state, first = trainer.train(trainer.init(), 0, 5)
    state, _ = trainer.train(state, 5, 45)
    _, last = trainer.train(state, 50, 10)
    assert last.loss[0] < first.loss[0] - 0.1
