"""What is said of keys that do not exist."""

import pytest

from configs import default
from lra.key_hints import near_key
from lra.settings import flatten

KEYS = list(flatten(default.get_config("nystrom")))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("train.lr", "train.learning_rate"),
        ("lr", "train.learning_rate"),
        ("train.bs", "train.batch_size"),
        ("train.nh", "model.num_heads"),
        ("model.attention.nl", "model.attention.num_landmarks"),
        ("train.stepz", "train.steps"),
        ("trian.steps", "train.steps"),
        ("steps", "train.steps"),
        ("seed", "seeds"),
        ("dim", "model.dim"),
        ("train.dropout", "model.dropout"),
        ("model.num_landmarks", "model.attention.num_landmarks"),
    ],
)
def test_a_similar_key_is_suggested(key, meant):
    assert near_key(key, KEYS) == f" (did you mean '{meant}'?)"


@pytest.mark.parametrize("key", ["train.zz", "train.eval_zzzzzzzz", "train.x", "train."])
def test_a_section_alone_makes_no_key_similar(key):
    keys = ", ".join(sorted(each for each in KEYS if each.startswith("train.")))
    assert near_key(key, KEYS) == f" (known: {keys})"


@pytest.mark.parametrize("key", ["zzz", "zzz.zzz", "", "."])
def test_outside_of_sections_these_are_named(key):
    known = "data.*, dtype, matmul_precision, mesh.*, model.*, seeds, task, train.*"
    assert near_key(key, KEYS) == f" (known: {known})"


def test_options_of_other_attentions_are_said_to_be_theirs():
    assert near_key("model.attention.window", KEYS) == " (an option of longformer)"
