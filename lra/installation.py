"""Whether this Python has what the project needs, said in one line before anything is imported.

Only syntax and modules that Python 3.8 knows: it has to get as far as the message.
"""

import importlib.util
import os
import sys

# What commands import before they parse their flags; `lra.command_line.run` reports any other.
_PACKAGES = ("absl", "filelock", "matplotlib", "ml_collections", "numba", "numpy", "PIL")
_PACKAGES += ("scipy", "tqdm")
_OLDEST = (3, 11)
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CURE = "run make install and activate it: source .venv/bin/activate"
_STATUS_BAD_INPUT = 2  # as in `lra.errors`, which an old Python cannot import


def check(packages=_PACKAGES):
    """Raise ImportError if Python is too old or one of `packages` is missing.

    A command prints the message instead, without a traceback, and exits with status 2.
    """
    message = _problem(packages)
    if message is None:
        return
    if not _is_command():
        raise ImportError(message)
    from lra.stderr import say

    say("error: " + message)
    sys.exit(_STATUS_BAD_INPUT)


def missing_package(name):
    """Say that a package is missing, and what to do."""
    return f"the package {name} is missing in {sys.executable}; {_CURE}"


def is_ours(module):
    """Return whether a module that was not found would be one of this checkout."""
    top = os.path.join(_ROOT, module.partition(".")[0])
    return os.path.isdir(top) or os.path.isfile(top + ".py")


def _problem(packages):
    if sys.version_info < _OLDEST:
        version = ".".join(map(str, sys.version_info[:2]))
        return f"{sys.executable} is Python {version}, 3.11 to 3.13 is needed; {_CURE}"
    for name in packages:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            return missing_package(name)
    return None


def _is_command():
    """Return whether a command of this project is being started, not a notebook or other program.

    `python -m lra.report` imports this package before it knows the file of the command.
    """
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        return sys.argv[:1] == ["-m"]
    return os.path.dirname(os.path.abspath(file)) == _ROOT
