"""A folder of a run, with metrics to draw."""

import json
import pathlib
from collections.abc import Sequence

from lra.settings import load_config, to_json


def write_run(
    root: pathlib.Path,
    steps: int = 20,
    overrides: Sequence[str] = (),
    attention: str = "nystrom",
    task: str = "listops",
) -> pathlib.Path:
    """A workdir with metrics, strange lines among them, and the last one cut short."""
    root.mkdir(parents=True)
    config = load_config(f"configs/{task}.py:{attention}", ["seeds=(0, 1)", *overrides])
    (root / "config.json").write_text(to_json(config))
    call = {"kind": "train", "loss": [2.0, 1.0], "accuracy": [0.5, 0.5]}
    evaluation = {"kind": "eval", "split": "validation", "loss": [2.0, 1.0]}
    entries = [
        *(call | {"step": step + 1} for step in range(steps)),
        evaluation | {"step": 10, "accuracy": [0.2, 0.4]},
        evaluation | {"step": 20, "accuracy": [0.5, None]},
        evaluation | {"split": "test", "step": 20, "accuracy": [0.9, 0.9]},
    ]
    strange = [{}, 3, {"kind": "train"}, call | {"step": 1, "loss": 2.0}, "[[["]
    strange += [evaluation | {"step": "5", "accuracy": [1.0]}]
    lines = [json.dumps(entry) for entry in [*strange, *entries]]
    (root / "metrics.jsonl").write_text("\n".join(lines) + '\n{"kind": "tr')
    return root
