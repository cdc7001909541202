"""train.py that tells which phase it is in, so that a kill can be aimed: `victim.py FD FLAGS`.

Phases go to the file descriptor FD, a line each; nothing else differs.
"""

import functools
import os
from collections.abc import Callable

import train
from lra import loop
from lra.checkpoints import Checkpoints
from lra.command_line import run
from lra.evaluation_files import SavedEvaluations


def main(argv: list[str]) -> int:
    """Train as `train.py` with all arguments but the first would."""
    tell = functools.partial(_tell, int(argv[0]))
    loop.Trainer.train = _announced(loop.Trainer.train, tell, "training", None)
    SavedEvaluations.evaluate = _announced(
        SavedEvaluations.evaluate, tell, "evaluation", "training"
    )
    Checkpoints.save = _announced(Checkpoints.save, tell, "checkpoint", "training")
    loop.write_once = _announced(loop.write_once, tell, "rows", "leaving")
    return train.main(argv[1:])


def _tell(file: int, phase: str) -> None:
    os.write(file, f"{phase}\n".encode())


def _announced(function: Callable, tell: Callable, phase: str, after: str | None) -> Callable:
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        tell(phase)
        try:
            return function(*args, **kwargs)
        finally:
            if after:
                tell(after)

    return wrapper


if __name__ == "__main__":
    run(main)
