"""Exec a command that receives SIGTERM when its parent process dies (Linux only).

    python leash.py PARENT_PID COMMAND [ARGUMENT ...]

This is a separate script because prctl must be called between fork and exec, where a process with
threads cannot safely run Python.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main(parent: int, command: list[str]) -> None:
    """Ask for SIGTERM on the death of process `parent`, then exec `command`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # otherwise it has already died
        os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
