"""Command lines: flag parsing, and expected errors as one line on stderr with status 2."""

import argparse
import ast
import errno
import importlib
import io
import math
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from lra.disk_space import cure, is_full
from lra.errors import NO_JAX, STATUS_BAD_INPUT, UserError, first_line, lack_of_memory, of_system
from lra.installation import is_ours, missing_package
from lra.near_names import near_match
from lra.stderr import say

STATUS_INTERRUPTED = 130
STATUS_BROKEN_PIPE = 141

_MAX_WORKERS = 1024


class ArgumentParser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` without abbreviations, whose errors are `UserError`s."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def parse_args(self, args: list[str], namespace: Any = None) -> argparse.Namespace:
        """Parse flags, reporting unknown ones before missing ones and refusing empty values.

        An empty path, as an unset shell variable leaves it, would mean the current folder.
        """
        if flag := self.unknown_flag(args):
            known = [option for option in self._option_string_actions if len(option) > 2]
            raise UserError(f"unknown flag {flag}{near_match(flag, known)}; see --help")
        options = super().parse_args(args, namespace)
        for name, value in vars(options).items():
            if value == "" or (isinstance(value, list) and "" in value):
                raise UserError(f"{name} is empty; give it a value or leave it out")
        return options

    def unknown_flag(self, args: list[str]) -> str | None:
        """Return the first flag that this parser does not have; None if it has all."""
        flags = (argument.partition("=")[0] for argument in args if argument.startswith("--"))
        return next((flag for flag in flags if flag not in self._option_string_actions), None)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")


def parse_with_overrides(
    parser: ArgumentParser, argv: list[str]
) -> tuple[argparse.Namespace, list[str]]:
    """Parse flags mixed with overrides of a configuration.

    Returns:
        The parsed flags, and `KEY=VALUE` for each `--config.KEY=VALUE` (or `--config.KEY VALUE`).
    """
    rest: list[str] = []
    overrides: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        if not argument.startswith("--config."):
            rest.append(argument)
            continue
        override = argument.removeprefix("--config.")
        if "=" not in override:
            value = next(arguments, None)
            if value is not None and value.startswith("--"):
                raise UserError(f"{argument} is followed by {value}, not by its value; see --help")
            override = override if value is None else f"{override}={value}"
        overrides.append(override)
    flag = parser.unknown_flag(rest)
    if flag and (key := _key_meant(flag.removeprefix("--"))):
        raise UserError(f"unknown flag {flag} (did you mean '--config.{key}'?); see --help")
    return parser.parse_args(rest), overrides


def _key_meant(name: str) -> str | None:
    """Return the name of a flag if it is a key of configurations, or begins with a section of them.

    Of a key of training or the model that lacks its section, return the whole key.
    """
    from configs import default  # only for the message of an error

    config, (first, *rest) = default.get_config(), name.split(".")
    if first in config and bool(rest) == (type(config[first]) is type(config)):
        return name
    for section in ("train", "model"):
        keys = config[section]
        if name in keys and type(keys[name]) is not type(config):
            return f"{section}.{name}"
    return None


def literal(text: str) -> Any:
    """Evaluate a Python literal; anything else is returned as it is."""
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def positive_integer(text: str) -> int:
    """Flag type: an integer of at least 1."""
    return _integer(text, 1, "a positive integer")


def positive_integers(text: str) -> list[int]:
    """Flag type: integers of at least 1, separated by commas."""
    return [positive_integer(part) for part in text.split(",")]


def worker_count(text: str) -> int:
    """Flag type of `--workers`: a number of threads that operating systems can start."""
    number = positive_integer(text)
    if number > _MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{number} are more than {_MAX_WORKERS:,}")
    return number


def integer_from_0(text: str) -> int:
    """Flag type: an integer of at least 0."""
    return _integer(text, 0, "0 or a positive integer")


def _integer(text: str, lowest: int, what: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < lowest:
        raise argparse.ArgumentTypeError(f"'{text}' is not {what}")
    if number >= 2**63:
        raise argparse.ArgumentTypeError(f"'{text}' does not fit in 64 bits")
    return number


def positive_number(text: str) -> float:
    """Flag type: a finite number greater than 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return number


def positive_minutes(text: str) -> float:
    """Flag type of `--budget_minutes`: a number greater than 0 that is finite in seconds too."""
    try:
        minutes = positive_number(text)
        positive_number(f"{60 * minutes}")
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number of minutes") from None
    return minutes


def folder(text: str) -> str:
    """Flag type: path of a folder, which need not exist; nothing above it may be a file.

    A `~` at its start is the home folder, which shells replace only at the start of a word.
    """
    text = os.path.expanduser(text)
    path = pathlib.Path(text)
    existing = next(filter(os.path.exists, (path, *path.parents)), None)
    if existing and not existing.is_dir():
        raise argparse.ArgumentTypeError(f"{existing} is a file, not a folder")
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise argparse.ArgumentTypeError(f"{text} is a loop of symbolic links") from None
    return text


def file_to_write(text: str) -> str:
    """Flag type: path of a file that can be written, which is checked before the work starts."""
    text = os.path.expanduser(text)
    folder = os.path.dirname(text) or "."
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"cannot write {text}, there is no folder {folder}")
    if os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"cannot write {text}, it is a folder")
    if os.path.exists(text) and not os.path.isfile(text):  # a rename would replace a device
        raise argparse.ArgumentTypeError(f"cannot write {text}, it is no regular file")
    place = os.path.dirname(os.path.realpath(text))  # where the target of a link is
    if not os.access(place, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text}, nothing can be written to {place}")
    return text


def import_jax() -> None:
    """Import JAX and Flax, which read their environment variables at that moment.

    Raises:
        UserError: If one of them has a value that they reject.
    """
    try:
        importlib.import_module("flax")  # imports JAX
    except ValueError as error:
        raise UserError(f"{NO_JAX}{first_line(error)}; correct that variable or unset it") from None


def run(
    main: Callable[[list[str]], int | None],
    argv: list[str] | None = None,
    *,
    out_of_memory: str = "",
) -> NoReturn:
    """Run `main(arguments)` and exit with its status.

    `UserError`, errors of the operating system (no space, no permission, no such file), a package
    that is not installed and running out of memory become one line on stderr and status 2, without
    a traceback. Ctrl-C exits with 130, and a closed output pipe (`| head`) with 141, as SIGPIPE
    would.

    Args:
        main: Main function of the command.
        argv: Command-line arguments; None for those of the process.
        out_of_memory: Advice to add to an out-of-memory error.
    """
    for name in ("stdout", "stderr"):  # None if the shell closed it (`>&-`)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the terminal's encoding lacks must not raise.
        sys.stdout.reconfigure(errors="replace")
    try:
        status = main(sys.argv[1:] if argv is None else argv) or 0
        sys.stdout.flush()
    except UserError as error:
        status = _report(str(error))
    except BrokenPipeError:
        # So that the interpreter's own flush at exit does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = STATUS_BROKEN_PIPE
    except OSError as error:
        advice = f"; {cure(error)} and run it again" if is_full(error) else ""
        status = _report(of_system(error) + advice)
    except KeyboardInterrupt:
        status = STATUS_INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name is None or is_ours(error.name):  # a fault of the program
            raise
        status = _report(missing_package(error.name.partition(".")[0]))
    except Exception as error:
        line = lack_of_memory(error, out_of_memory)
        if line is None:
            raise
        status = _report(line)
    sys.exit(status)


def _report(message: str) -> int:
    say("error: " + " ".join(message.split()))
    return STATUS_BAD_INPUT
