"""How long does a run take to its first evaluation, with and without `lra.ahead`?

    python -m benchmarks.startup --config=configs/pathfinder.py:nystrom --config.dtype=bfloat16

Trains with and without ahead-of-time compilation in turns, in alternating order. Each run has a
process and folder of its own and no compilation cache, and is stopped once it has printed its first
validation accuracy. With --config.train.eval_every=8 hardly anything but start-up remains: imports,
reading data, compilation. `lra.ahead` compiles programs in parallel with other work where that is
worthwhile, that is, on accelerators; on a CPU nothing differs unless --force is given.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from types import ModuleType

from lra import ahead
from lra.command_line import ArgumentParser, parse_with_overrides, positive_integer, run
from lra.errors import UserError

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_FIRST_EVALUATION = "validation accuracy"  # in the line that a run prints
_CHILD = "import sys, train; from benchmarks import startup; startup.child(train, sys.argv[1:])"


def main(argv: list[str]) -> int:
    """Time runs with and without ahead-of-time compilation in turns and print a table."""
    options, overrides = parse_with_overrides(_parser(), argv)
    flags = [f"--config={options.config}", f"--data_dir={options.data_dir}"]
    flags += [f"--config.{override}" for override in overrides]
    seconds: dict[str, list[float]] = {"always" if options.force else "usual": [], "never": []}
    for turn in range(options.repeats):
        for when in sorted(seconds, reverse=turn % 2 == 1):
            seconds[when].append(until_first_evaluation([when, *flags]))
    print("| compiled ahead | seconds to the first evaluation | all |\n|---|---|---|")
    for when, times in seconds.items():
        all_times = ", ".join(f"{t:.1f}" for t in times)
        print(f"| {when} | {statistics.median(times):.1f} | {all_times} |")
    return 0


def until_first_evaluation(arguments: list[str]) -> float:
    """Return the seconds from the start of a process to the message of its first evaluation.

    Args:
        arguments: When to compile ahead (`usual`, `always` or `never`), then flags of `train.py`.

    Raises:
        UserError: If the process ends before that, with the last line that it printed.
    """
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.getenv("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _CHILD, *arguments, f"--workdir={folder}/run"]
        start = time.monotonic()
        with subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as child:
            lines = []
            for line in child.stderr:
                lines.append(line)
                if _FIRST_EVALUATION in line:
                    seconds = time.monotonic() - start
                    child.terminate()
                    child.communicate()
                    return seconds
    raise UserError(f"it ended before its first evaluation: {lines[-1].strip() if lines else ''}")


def child(command: ModuleType, argv: list[str]) -> None:
    """Run `train.py` in this process.

    Args:
        command: The module `train`.
        argv: Arguments as of `until_first_evaluation`, and --workdir.
    """
    when, *flags = argv
    if when != "usual":
        ahead.is_worthwhile = lambda: when == "always"
    run(command.main, flags)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--config", required=True, metavar="configs/TASK.py:ATTENTION")
    parser.add_argument("--data_dir", default="data", metavar="DIR", help="prepared data (data)")
    parser.add_argument(
        "--repeats", type=positive_integer, default=2, metavar="N", help="(%(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="compile ahead on a CPU too")
    return parser


if __name__ == "__main__":
    run(main)
