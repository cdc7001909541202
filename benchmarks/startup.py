"""How long until a run has its first evaluation, with and without `lra.ahead`? In turns.

    python -m benchmarks.startup --config=configs/pathfinder.py:nystrom --config.dtype=bfloat16

Each is a training in a process and folder of its own, without a compile cache, which is told to
stop once it has said its first validation accuracy; the order changes from round to round. With
--config.train.eval_every=8 little but starting remains: importing, reading data, compiling. Ahead,
programs are compiled beside other work where that is worthwhile, so on accelerators; on a CPU
nothing differs unless --force is given.
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
_FIRST = "validation accuracy"
_CHILD = "import sys, train; from benchmarks import startup; startup.child(train, sys.argv[1:])"


def main(argv: list[str]) -> int:
    """Starts both in turns and prints a table."""
    options, overrides = parse_with_overrides(_parser(), argv)
    flags = [f"--config={options.config}", f"--data_dir={options.data_dir}"]
    flags += [f"--config.{override}" for override in overrides]
    seconds: dict[str, list[float]] = {"always" if options.force else "usual": [], "never": []}
    for turn in range(options.repeats):
        for when in sorted(seconds, reverse=turn % 2 == 1):
            seconds[when].append(until_first_evaluation([when, *flags]))
    print("| compiled ahead | seconds to the first evaluation | all |\n|---|---|---|")
    for when, found in seconds.items():
        each = ", ".join(f"{one:.1f}" for one in found)
        print(f"| {when} | {statistics.median(found):.1f} | {each} |")
    return 0


def until_first_evaluation(arguments: list[str]) -> float:
    """Seconds from the start of a process to what it says of its first evaluation.

    Args:
        arguments: when to compile ahead, `usual`, `always` or `never`, and the flags of `train.py`.

    Raises:
        UserError: it ended before; with the last that it said.
    """
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.getenv("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _CHILD, *arguments, f"--workdir={folder}/run"]
        begun = time.monotonic()
        with subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as child:
            said = []
            for line in child.stderr:
                said.append(line)
                if _FIRST in line:
                    seconds = time.monotonic() - begun
                    child.terminate()
                    child.communicate()
                    return seconds
    raise UserError(f"it ended before its first evaluation: {said[-1].strip() if said else ''}")


def child(command: ModuleType, argv: list[str]) -> None:
    """Runs `train.py`, compiling ahead as told; `until_first_evaluation` says what `argv` is."""
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
