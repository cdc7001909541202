"""What is kept of the metrics of a run, and what is no metric."""

import json

import pytest

from lra.metrics import Metrics, read_metrics


@pytest.mark.parametrize(
    "damage",
    [
        {"loss": [1e308]},
        {"accuracy": [0.5, -(10**400)]},
        {"accuracy": [0.5]},
        {"loss": None},
        {"loss": [float("nan")]},
        {"loss": [float("inf")]},
        {"step": -1},
        {"step": 2**63},
        {"step": 10**400},
        {"examples_per_second": 1e308},
        {"examples_per_second": -1.0},
        {"examples_per_second": "64"},
    ],
)
def test_metrics_that_no_run_writes_are_left_out(tmp_path, damage):
    path = tmp_path / "metrics.jsonl"
    sound = {"kind": "train", "step": 2**63 - 1, "loss": [3.4028234663852886e38, None]}
    sound |= {"accuracy": [0.5, None], "examples_per_second": 64.0}
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (sound | damage, sound)))
    assert read_metrics(path) == [sound]


def test_metrics_go_on_behind_what_was_saved(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "train"}\n3\n\xff\n')  # none of ours
    metrics = Metrics(path, 0, 0)
    for step in (5, 10):
        metrics.write(kind="train", step=step, loss=[1.0], accuracy=[0.5])
        metrics.write(kind="eval", step=step, loss=[1.0], accuracy=[None])
    metrics.close()
    with open(path, "a") as file:
        file.write('{"kind": "train", "st')
    Metrics(path, 10, 5).close()
    assert [(line["kind"], line["step"]) for line in read_metrics(path)] == [
        ("train", 5),
        ("eval", 5),
        ("train", 10),
    ]
