"""Loading, checking and serialising of configurations, without importing JAX."""

import contextlib
import json
import logging
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from absl import flags
from ml_collections import config_dict, config_flags

from configs import default
from lra.command_line import literal
from lra.errors import UserError
from lra.key_hints import near_key
from lra.near_names import near_file, near_match
from lra.setting_values import check_values
from lra.tasks import TASKS

CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "configs"

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_SET_BY_SPEC = ("task", "model.attention", "model.attention.name")


def load_config(spec: str, overrides: Iterable[str] = ()) -> config_dict.ConfigDict:
    """Load the configuration of `spec` with `overrides`, checked and locked.

    Args:
        spec: Config file and attention, `configs/listops.py:nystrom`.
        overrides: `KEY=VALUE` strings, with values as on the command line; the last one for a key
            takes effect.

    Raises:
        UserError: If there is no such file, attention or key (the message names a near match), or a
            value has the wrong type or is one that no run can have.
    """
    overrides = list(overrides)
    base = _parse(spec, [])
    known = flatten(base)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise UserError(f"--config.{key} needs a value: --config.{key}=VALUE")
        if _CONTROL_CHARACTER.search(value):
            raise UserError(
                f"--config.{key} has a line break or other control character: {value!r}"
            )
        if key == "model.attention.causal":
            raise UserError(
                "no attention here is causal: the tasks classify whole sequences, and each sees "
                "all positions"
            )
        if key in _SET_BY_SPEC:
            raise UserError(f"{key} comes from --config=configs/TASK.py:ATTENTION, set it there")
        if key not in known:
            raise UserError(f"unknown config key '{key}'{near_key(key, known)}")
        if isinstance(known[key], tuple):
            _check_is_tuple(key, value, known[key])
    config = _parse(spec, last_of_each_key(overrides))
    check(config)
    _canonicalise(config)
    return config.lock()


def _canonicalise(config: config_dict.ConfigDict) -> None:
    """Write values that mean the same in one way, since rows are told apart by their text."""
    options = config.model.attention
    if options.name == "linformer":  # order and repetitions in its `share` have no meaning
        options.share = tuple(sorted(set(options.share)))
    zeros = [key for key, value in flatten(config).items() if type(value) is float and not value]
    config.update_from_flattened_dict(dict.fromkeys(zeros, 0.0))  # some may be -0.0


def locate(spec: str) -> str:
    """Resolve the file of `spec` relative to the working directory or else to the checkout.

    Raises:
        UserError: If there is no such file.
    """
    path, *attention = spec.split(":", 1)
    for file in (pathlib.Path(path), CONFIGS.parent / path):
        if file.is_file():
            return ":".join([str(file), *attention])
    raise _no_config_file(spec)


def last_of_each_key(overrides: Iterable[str]) -> list[str]:
    """Keep only the last override of each key.

    The flag parser would concatenate a tuple that is given twice.
    """
    return list({override.partition("=")[0]: override for override in overrides}.values())


def text_of(value: Any) -> str:
    """Format a value as an override on the command line, where sequences are tuples.

    Raises:
        ValueError: No key has such a value.
    """
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return value if isinstance(value, str) else repr(_plain(value))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return tuple(map(_plain, value))
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is no text, number or list of these")
    return value


def flatten(config: config_dict.ConfigDict) -> dict[str, Any]:
    """Flatten a configuration to values by dotted key, in order: `{"train.steps": 5000, ...}`."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, config_dict.ConfigDict):
            flat |= {f"{key}.{rest}": inner for rest, inner in flatten(value).items()}
        else:
            flat[key] = value
    return flat


def to_json(config: config_dict.ConfigDict) -> str:
    """Serialise a configuration as JSON; tuples become lists."""
    return json.dumps(config.to_dict(), indent=1)


def from_json(text: str | bytes) -> config_dict.ConfigDict:
    """Parse a configuration, the inverse of `to_json`.

    Keys that were added since then get the defaults of the task. The values are not checked.

    Raises:
        ValueError, UserError: If the text is not such a configuration.
    """
    config = config_dict.ConfigDict(_tuples(json.loads(text)))
    present, attention = flatten(config), config.model.attention.name
    if attention not in default.ATTENTIONS:  # `check` says so
        return config.lock()
    if all(key in present for key in flatten(default.get_config(attention))):
        return config.lock()
    of_task = default.get_config(attention)
    if config.task in TASKS:  # not any file that the text may name
        of_task = load_config(f"{CONFIGS / config.task}.py:{attention}")
    added = {key: value for key, value in flatten(of_task).items() if key not in present}
    config.update_from_flattened_dict(added)
    return config.lock()


def check(config: config_dict.ConfigDict) -> None:
    """Raise UserError for keys and values that no run can have, naming the key and the fix."""
    flat = flatten(config)
    defaults = _check_keys(flat)
    _check_types(flat, defaults)
    check_values(flat)


def _parse(spec: str, overrides: list[str]) -> config_dict.ConfigDict:
    located = locate(spec)
    values = flags.FlagValues()
    argv = ["", f"--config={located}", *(f"--config.{override}" for override in overrides)]
    config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=argv)
    # ml_collections loads all config files under one module name, so drop that of an earlier file.
    sys.modules.pop("config_config", None)
    try:
        # What a config file prints is no output of a command, as of --launcher=print.
        with _without_warnings(), contextlib.redirect_stdout(sys.stderr):
            values(argv)
            config = values.config
    except flags.Error as error:
        # An exception in the config file arrives as text with its traceback: keep its last line.
        reason = str(error).strip().splitlines()[-1].removeprefix("ValueError: ")
        if "Non-boolean argument" in reason:
            text = reason.removeprefix("flag --config.").partition(": ('Non-boolean argument")[0]
            key, _, value = text.partition("=")
            raise UserError(f"config key {key} is True or False, not {value!r}") from None
        if reason.startswith("flag --config."):
            raise UserError(reason.replace("flag --config.", "config key ")) from None
        raise UserError(f"{spec}: {reason}") from None
    except (Exception, SystemExit) as error:  # whatever the config file itself raises
        file = pathlib.Path(located.partition(":")[0])
        if isinstance(error, AttributeError) and not _is_config(file):
            raise UserError(
                f"{spec} has no get_config(attention); name a config file, as in "
                "configs/listops.py:nystrom"
            ) from None
        raise UserError(f"{spec}: {type(error).__name__}: {error}") from None
    if not isinstance(config, config_dict.ConfigDict):
        raise UserError(f"{spec}: get_config returns a {type(config).__name__}, not a ConfigDict")
    return config


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence ml_collections, which warns of what is then an error."""
    logger = logging.getLogger("absl")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _no_config_file(spec: str) -> UserError:
    path = pathlib.Path(spec.partition(":")[0])
    if spec.count(":") > 1:
        return UserError(f"{spec}: the path of a config file has no colon; move it elsewhere")
    if path.is_dir():
        return UserError(f"{path} is a folder; name a file, as in configs/listops.py:nystrom")
    if path.name in default.ATTENTIONS:
        return UserError(f"no config file {path}: name a task too, as in configs/listops.py:{path}")
    tasks = sorted(set(CONFIGS.glob("*.py")) - {CONFIGS / "default.py"})
    known = [pathlib.Path(CONFIGS.name, file.name) for file in tasks]
    known += filter(_is_config, path.parent.glob("*.py"))
    return UserError(f"no config file {path}{near_file(path, known)}")


def _is_config(path: pathlib.Path) -> bool:
    """Whether a Python file has the function of a config file."""
    try:
        return b"get_config" in path.read_bytes()
    except OSError:  # a link to nothing, a folder, a file that may not be read
        return False


def _check_is_tuple(key: str, text: str, default: tuple) -> None:
    """Raise UserError unless `text` is a tuple; the flag parser would wrap other values in one."""
    value = literal(text)
    if isinstance(value, tuple):
        return
    if isinstance(value, str):
        suggestion = tuple(filter(None, (word.strip() for word in value.split(","))))
    else:
        suggestion = tuple(value) if isinstance(value, list) else (value,)
    if not suggestion or any(type(element) is not type(default[0]) for element in suggestion):
        suggestion = default
    raise UserError(f'{key} is a tuple, not {value!r}: --config.{key}="{suggestion!r}"')


def _check_types(flat: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Raise UserError for values whose type differs from that of their default.

    ml_collections checks neither None nor the elements of tuples. Floats may be integers. NumPy
    numbers are refused, since rows hold JSON.
    """
    for key, value in flat.items():
        kind = type(defaults[key])
        if key == "model.attention.proj_dim" and flat["model.attention.name"] == "linformer":
            _check_nested_integers(key, value)
        elif kind is tuple and isinstance(value, tuple):
            inner = type(defaults[key][0])
            for element in value:
                if type(element) is not inner:
                    raise UserError(
                        f"{key} holds values of type {inner.__name__}, not {element!r} "
                        f"({type(element).__name__})"
                    )
        elif type(value) is not kind and (kind, type(value)) != (float, int) and key != "task":
            raise UserError(
                f"{key} is of type {kind.__name__}, not {value!r} ({type(value).__name__})"
            )


def _check_nested_integers(key: str, value: Any) -> None:
    if isinstance(value, tuple):
        for element in value:
            _check_nested_integers(key, element)
    elif type(value) is not int or value < 1:
        raise UserError(f"{key} holds positive integers, not {value!r}")


def _check_keys(flat: dict[str, Any]) -> dict[str, Any]:
    """Raise UserError unless the keys are those of `configs/default.py`; return the defaults."""
    attention = flat.get("model.attention.name")
    if attention not in default.ATTENTIONS:
        known = near_match(str(attention), default.ATTENTIONS)
        raise UserError(f"unknown attention '{attention}' in model.attention.name{known}")
    expected = flatten(default.get_config(attention))
    for key in flat:
        if key not in expected:
            raise UserError(f"the config sets '{key}', which is no key{near_key(key, expected)}")
    for key in expected:
        if key not in flat:
            raise UserError(f"the config lacks the key {key}; start from configs/default.py")
    return expected


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(_tuples(inner) for inner in value) if isinstance(value, list) else value
