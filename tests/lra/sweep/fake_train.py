"""Stands in for train.py in tests of the sweep: takes its flags, keeps its promises, computes not.

    python fake_train.py BEHAVIOUR --config=... --workdir=... --data_dir=... --config.KEY=VALUE

BEHAVIOUR is JSON, attention -> what its runs do: `ok` (the default), `crash`, `killed`, `refuse`,
`no rows`, `damaged rows`, `vanish` (its folder is removed), `diverge`, `patient` (waits for a
signal), `slow` (stops before its first step), `in parts` (stops after every fourth step) or
`evaluates` (as `in parts`, of an evaluation behind the last step). Each start is noted in
`starts.jsonl` beside the workdir. Seeds take ten steps, of which each is "checkpointed".
"""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import sys
import time

import filelock

from lra.command_line import ArgumentParser, parse_with_overrides, run
from lra.data import prepared
from lra.errors import UserError
from lra.protocol import overrides_of, protocol_of
from lra.records import write_once
from lra.row import Row
from lra.settings import flatten, load_config
from lra.stopping import STATUS_STOPPED
from tests.lra.row_factory import diverged_row, make_row

STEPS = 10
stopped = []


def main(argv: list[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stopped.append(number))
    parser = ArgumentParser()
    for flag in ("config", "workdir", "data_dir", "budget_minutes"):
        parser.add_argument(f"--{flag}")
    options, overrides = parse_with_overrides(parser, argv[1:])
    config = load_config(options.config, overrides)
    workdir = pathlib.Path(options.workdir)
    workdir.mkdir(exist_ok=True)
    behaviour = json.loads(argv[0]).get(config.model.attention.name, "ok")
    with filelock.FileLock(workdir / ".lock", blocking=False):
        start = {
            "folder": workdir.name,
            "argv": argv[1:],
            "pid": os.getpid(),
            "cores": sorted(getattr(os, "sched_getaffinity", lambda _: ())(0)),  # of Linux
            "cache": os.environ["JAX_COMPILATION_CACHE_DIR"],
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "preallocate": os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE"),
        }
        with open(workdir.parent / "starts.jsonl", "a") as file:
            file.write(json.dumps(start) + "\n")
        status = _behave(behaviour, workdir)
        if status is None:
            write_once(workdir / "rows.jsonl", _rows(config, options.data_dir, behaviour))
            status = 1 if behaviour == "diverge" else 0
        return status


def _behave(behaviour: str, workdir: pathlib.Path) -> int | None:
    if behaviour == "crash":
        print("step 3/10: all is well", file=sys.stderr)
        raise RuntimeError("INTERNAL: a mistake of XLA")
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "vanish":
        shutil.rmtree(workdir)
        raise RuntimeError("INTERNAL: no folder")
    if behaviour == "refuse":
        raise UserError("no such landmarks")
    if behaviour == "no rows":
        return 0
    if behaviour == "damaged rows":
        (workdir / "rows.jsonl").write_text('{"a": 1}\n')
        return 0
    done = workdir / "checkpoint"
    step = int(done.read_text() or 0) if done.exists() else 0
    while step < STEPS or behaviour == "patient":
        if stopped or behaviour == "slow":
            return STATUS_STOPPED
        time.sleep(0.01)
        step += 1
        done.write_text(str(step))
        _note(workdir / "metrics.jsonl", step)
        if behaviour == "in parts" and step % 4 == 0:
            return STATUS_STOPPED
    return _evaluate(workdir / "evaluations") if behaviour == "evaluates" else None


def _evaluate(folder: pathlib.Path) -> int | None:
    folder.mkdir(exist_ok=True)
    saved = folder / "test-best.npz"
    done = int(saved.read_text()) if saved.exists() else 0
    saved.write_text(str(min(done + 4, STEPS)))
    return STATUS_STOPPED if done + 4 < STEPS else None


def _note(metrics: pathlib.Path, step: int) -> None:
    line = {"kind": "train", "step": step, "loss": [2.3], "accuracy": [0.1]}
    with open(metrics, "a") as file:
        file.write(json.dumps(line | {"examples_per_second": 64.0}) + "\n")


def _rows(config, data_dir: str, behaviour: str) -> list[Row]:
    data = prepared.load(data_dir, config.task)
    facts = {
        "task": config.task,
        "attention": config.model.attention.name,
        "protocol": protocol_of(config),
        "config": flatten(config),
        "config_overrides": overrides_of(config),
        "steps": config.train.steps,
        "data": data.manifest["data"],
        "data_sha256": data.sha256,
    }
    make = diverged_row if behaviour == "diverge" else make_row
    rows = [make(**facts, seed=seed) for seed in config.seeds]
    if behaviour == "diverge":
        return rows
    return [dataclasses.replace(row, test_accuracy=0.5 - row.seed / 100) for row in rows]


if __name__ == "__main__":
    run(main)
