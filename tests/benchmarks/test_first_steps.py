"""The table of first steps: losses over the same few examples, spread over the training set."""

import re

import numpy as np
import pytest

from benchmarks import first_steps
from lra import training_rows
from lra.data import prepared
from lra.errors import UserError
from tests.lra.conftest import COUNTS, write_listops, write_retrieval

FLAGS = ["--attentions=linear", "--examples=8", "--batch=4", "--epochs=12"]


@pytest.fixture
def data_dir(tmp_path):
    write_listops(tmp_path)
    write_retrieval(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_loss_of_every_task_at_hand_falls(data_dir, capsys):
    rows = data_dir / "rows.jsonl"
    flags = [*FLAGS, f"--data_dir={data_dir}", "--tasks=listops,image", f"--out={rows}"]
    assert first_steps.main(flags) == 0
    out, err = capsys.readouterr()
    header, _, *lines = out.splitlines()
    assert header == "| task | linear |"
    assert [line.split()[1] for line in lines] == ["listops", "image"]
    first, last = map(float, re.findall(r"\d+\.\d+", lines[0]))
    assert last < first
    assert lines[1] == "| image | – |"
    (row,) = training_rows.read(rows, training_rows.LossRow)
    assert (row["task"], row["attention"], len(row["losses"])) == ("listops", "linear", 12)
    assert first_steps.cell(row["losses"]) == lines[0].split("| ")[2].strip(" |")
    assert err.startswith("image, linear skipped: ")


def test_a_task_that_is_not_there_alone_is_an_error(tmp_path):
    with pytest.raises(UserError, match="nothing could be trained"):
        first_steps.main([*FLAGS, f"--data_dir={tmp_path}", "--tasks=text"])


@pytest.mark.parametrize("flag", ["--epochs=2", "--batch=3", "--batch=0", "--examples=100000"])
def test_sizes_that_do_not_fit(tmp_path, flag):
    with pytest.raises(UserError, match="--examples must be"):
        first_steps.main([*FLAGS, f"--data_dir={tmp_path}", flag])


@pytest.mark.parametrize("task", ["listops", "retrieval"])
def test_the_examples_are_those_of_the_training_set(data_dir, task):
    whole = prepared.load(data_dir, task)
    chosen = np.linspace(0, COUNTS["train"] - 1, 8).astype(int)
    expected, found = whole.split("train"), first_steps.few(whole, 8).split("train")
    np.testing.assert_array_equal(found.labels, expected.labels[chosen])
    if task == "retrieval":
        np.testing.assert_array_equal(found.pairs, expected.pairs[chosen])
        return
    for index, one in enumerate(chosen):
        np.testing.assert_array_equal(found.sequences[index], expected.sequences[one])
