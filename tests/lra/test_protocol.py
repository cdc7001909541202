"""The values of Table 3, written down a second time: a changed default is no longer that protocol.

Sources: Xiong et al., arXiv 2102.03902, LRA section; mlpen/Nystromformer, LRA, commit 5689313.
"""

import pytest

from lra.protocol import changed_keys, defaults_of, departures, describe, without_execution
from lra.published import TABLE_TASKS
from lra.settings import flatten, load_config

COMMON = {
    "data.holdout": 0.0,
    "model.dim": 64,
    "model.dropout": 0.1,
    "model.head_dim": 32,
    "model.mlp_dim": 128,
    "model.num_heads": 2,
    "model.num_layers": 2,
    "model.pooling": "padded_mean",
    "model.positions": "learned",
    "model.remat": False,
    "train.init_from": "",
    "train.learning_rate": 1e-4,
    "train.max_grad_norm": 0.0,
    "train.microbatches": 1,
    "train.weight_decay": 0.0,
}
# steps, warmup_steps, batch_size, eval_every, zero_is_padding
OF_TASK = {
    "listops": (5_000, 1_000, 32, 50, False),
    "text": (20_000, 8_000, 32, 500, False),
    "retrieval": (30_000, 800, 32, 300, False),
    "image": (35_000, 175, 256, 175, True),
    "pathfinder": (62_400, 312, 256, 312, True),
}
OF_ATTENTION = {
    "standard": {"dropout": 0.1, "implementation": "auto"},
    "nystrom": {"num_landmarks": 64, "pinv_iterations": 6, "conv_kernel": 35},
    "linformer": {"proj_dim": 256, "share": ("kv", "layers"), "projection": "linear"},
    "performer": {"num_features": 256, "kernel": "softmax", "epsilon": 1e-4, "redraw_steps": 0},
    "reformer": {"num_hashes": 2, "chunk_length": 64},
    "longformer": {"window": 128},
    "linear": {},
}
# Number formats and ways of execution; they leave the protocol as it is.
NEUTRAL = ("seeds", "dtype", "matmul_precision", "mesh.", "train.steps_per_call", "train.check")


@pytest.mark.parametrize("attention", OF_ATTENTION)
@pytest.mark.parametrize("task", TABLE_TASKS)
def test_defaults_are_table_3(task, attention):
    steps, warmup, batch, every, zero_is_padding = OF_TASK[task]
    options = {f"model.attention.{name}": value for name, value in OF_ATTENTION[attention].items()}
    expected = COMMON | options
    expected |= {"task": task, "model.attention.name": attention}
    expected |= {"train.steps": steps, "train.warmup_steps": warmup, "train.batch_size": batch}
    expected |= {"train.eval_every": every, "train.eval_batch_size": batch}
    expected["data.zero_is_padding"] = zero_is_padding
    found = flatten(load_config(f"configs/{task}.py:{attention}"))
    assert {k: v for k, v in found.items() if not k.startswith(NEUTRAL)} == expected


def test_print_config_marks_what_differs():
    config = load_config(
        "configs/listops.py:nystrom", ["train.steps=500", "dtype=bfloat16", "seeds=(0, 1)"]
    )
    lines = describe(config).splitlines()
    assert [line for line in lines if "#" in line] == [
        "dtype = 'bfloat16'  # default: 'float32'",
        "seeds = (0, 1)  # default: (0,)",
        "train.steps = 500  # default: 5000",
    ]
    assert lines[-1] == (
        "protocol: changed: train.steps=500; another number format: dtype=bfloat16"
    )
    assert describe(load_config("configs/listops.py:nystrom")).endswith("\nprotocol: table3")
    for name in ("pathx.py:nystrom", "listops.py:linear"):
        last = describe(load_config(f"configs/{name}")).splitlines()[-1]
        assert last == "protocol: table3 (the defaults; Table 3 has no such cell)"


def test_a_row_is_compared_with_the_protocol_of_today():
    values = {"train.steps": 5000, "model.attention.share": ["kv", "layers"], "dtype": "bfloat16"}
    assert departures("listops", "linformer", values) == {}
    changed = {"train.steps": 4999, "model.attention.share": ["kv"], "a.key.of.tomorrow": 1}
    assert departures("listops", "linformer", values | changed) == {
        "train.steps": 4999,
        "model.attention.share": ["kv"],
    }


def test_of_what_is_not_ours_nothing_is_known(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("raise AssertionError('a row is not to be executed')")
    monkeypatch.chdir(tmp_path)
    assert departures("../mine", "nystrom", {"train.steps": 1}) == {}
    assert departures("listops", "mine", {"train.steps": 1}) == {}


def test_no_other_key_leaves_run_and_protocol_as_they_are():
    flat = flatten(load_config("configs/listops.py:nystrom"))
    execution = {"mesh.seed", "mesh.data", "train.steps_per_call", "train.checkpoint_seconds"}
    assert flat.keys() - without_execution(flat).keys() == execution
    neutral = execution | {"seeds", "dtype", "matmul_precision"}
    assert flat.keys() - defaults_of("listops", "nystrom").keys() == neutral


def test_keys_of_only_one_of_two_configurations_make_them_different_runs():
    one = {"train.steps": 9, "mesh.data": 2}
    assert changed_keys(one, one | {"mesh.data": 1, "model.new": 0}) == ["model.new"]
    assert changed_keys(one | {"model.old": 0}, one) == ["model.old"]
