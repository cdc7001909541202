"""How long does it take to render a report of many rows in every format, figures included?

    python -m benchmarks.report_rendering --seeds=20 --values=19

The rows are those of Table 3, and as many again for each value of a swept option: 10,000 by
default, each with its whole configuration, as training writes them. Rows and report are in a
temporary folder. The time is that of the whole command, including its start.
"""

import functools
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from lra import records
from lra.command_line import ArgumentParser, integer_from_0, positive_integer, run
from lra.protocol import overrides_of, protocol_of
from lra.published import TABLE3, TABLE_TASKS
from lra.row import Row
from lra.settings import flatten, load_config

_FORMATS = "md,csv,latex,html"


def main(argv: list[str]) -> int:
    """Write rows, render them and print the seconds taken."""
    parser = ArgumentParser(prog="python -m benchmarks.report_rendering", description=__doc__)
    parser.add_argument("--seeds", type=positive_integer, default=20, help="of each cell (20)")
    parser.add_argument("--values", type=integer_from_0, default=19, help="of the option (19)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.jsonl"
        rows = make_rows(options.seeds, options.values)
        records.write_once(path, rows)
        seconds, cpu_seconds = render(path, pathlib.Path(folder) / "out")
    print(f"rows          {len(rows):,}")
    print(f"rendering     {seconds:.1f} s, of one core {cpu_seconds:.1f} s")
    return 0


def make_rows(seeds: int, values: int) -> list[Row]:
    """Return rows of every cell of Table 3, and of a sweep over the values 1 to `values`."""
    runs = itertools.product(TABLE_TASKS, TABLE3, range(values + 1), range(seeds))
    return [_row(*run) for run in runs]


def render(rows: pathlib.Path, out: pathlib.Path) -> tuple[float, float]:
    """Render a file of rows in every format; return wall-clock seconds and CPU seconds."""
    command = [sys.executable, "-m", "lra.report", str(rows), f"--out={out}"]
    start, cpu_start = time.perf_counter(), _cpu_seconds()
    subprocess.run([*command, f"--format={_FORMATS}"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start, _cpu_seconds() - cpu_start


def _cpu_seconds() -> float:
    """Return CPU seconds of ended child processes."""
    times = os.times()
    return times.children_user + times.children_system


def _row(task: str, attention: str, decay: int, seed: int) -> Row:
    return Row(
        task=task,
        attention=attention,
        seed=seed,
        data="generated",
        status="ok",
        steps=5000,
        dtype="float32",
        matmul_precision="float32",
        data_sha256="0" * 64,
        test_accuracy=0.5,
        val_accuracy=0.5,
        test_accuracy_last=0.5,
        best_step=4000,
        params=207_000,
        device="none",
        num_devices=1,
        seeds_in_program=1,
        examples_per_second=1000.0,
        peak_memory_mb=512.0,
        wall_seconds=600.0,
        commit="0" * 40,
        versions={"jax": "0.11.2", "flax": "0.12.8", "optax": "0.2.8", "numpy": "2.4.6"},
        **_configured(task, attention, decay),
    )


@functools.cache
def _configured(task: str, attention: str, decay: int) -> dict[str, Any]:
    """Return the fields of a cell's configuration, with a weight decay (0 is the default)."""
    config = load_config(f"configs/{task}.py:{attention}", [f"train.weight_decay={decay}"])
    return {
        "protocol": protocol_of(config),
        "config": flatten(config),
        "config_overrides": overrides_of(config),
    }


if __name__ == "__main__":
    run(main)
