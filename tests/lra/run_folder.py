"""A folder of a run, with metrics to draw."""

import json
import pathlib
from collections.abc import Sequence

from lra.settings import load_config, to_json


def write_run(root: pathlib.Path, steps: int = 20, overrides: Sequence[str] = ()) -> pathlib.Path:
    """A workdir with metrics, strange lines among them, and the last one cut short."""
    root.mkdir(parents=True)
    config = load_config("configs/listops.py:nystrom", ["seeds=(0, 1)", *overrides])
    (root / "config.json").write_text(to_json(config))
    entries = [
        *({"kind": "train", "step": step + 1, "loss": [2.0, 1.0]} for step in range(steps)),
        {"kind": "eval", "split": "validation", "step": 10, "accuracy": [0.2, 0.4]},
        {"kind": "eval", "split": "validation", "step": 20, "accuracy": [0.5, None]},
        {"kind": "eval", "split": "test", "step": 20, "accuracy": [0.9, 0.9]},
    ]
    strange = [{}, 3, {"kind": "train"}, {"kind": "train", "step": 1, "loss": 2.0}]
    strange += [{"kind": "eval", "split": "validation", "step": "5", "accuracy": [1.0]}, "[[["]
    lines = [json.dumps(entry) for entry in [*strange, *entries]]
    (root / "metrics.jsonl").write_text("\n".join(lines) + '\n{"kind": "tr')
    return root
