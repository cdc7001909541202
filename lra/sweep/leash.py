"""Becomes another command that gets SIGTERM when the process that started it dies (Linux only).

    python leash.py PARENT_PID COMMAND [ARGUMENT ...]

A script of its own because the wish must be made between fork and exec, where a process with
threads may run no Python.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main(parent: int, command: list[str]) -> None:
    """Makes the wish and becomes `command`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # else it has died before
        os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
