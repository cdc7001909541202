"""What a run changed: its overrides, and whether it still is the protocol of Table 3."""

import functools
import json
from typing import Any

from ml_collections import config_dict

from configs.default import ATTENTIONS
from lra.row import NUMBER_FORMAT
from lra.settings import CONFIGS, flatten, load_config
from lra.tasks import TASKS

TABLE3 = "table3"

# Keys that say how a run is carried out, not what it computes.
_EXECUTION = ("mesh.seed", "mesh.data", "train.steps_per_call", "train.checkpoint_seconds")
_NEUTRAL = ("seeds", *NUMBER_FORMAT, *_EXECUTION)


def overrides_of(config: config_dict.ConfigDict) -> dict[str, Any]:
    """What differs from the task's defaults, seeds and ways of execution aside."""
    return _difference(config, ("seeds", *_EXECUTION))


def protocol_of(config: config_dict.ConfigDict) -> str:
    """`table3`, or `changed: train.steps=500, ...` where more than neutral keys differ.

    Neutral are seeds, number formats, mesh, steps per call and the checkpoint interval.
    """
    changed = _difference(config, _NEUTRAL)
    if not changed:
        return TABLE3
    return "changed: " + ", ".join(f"{key}={value}" for key, value in changed.items())


def departures(task: str, attention: str, values: dict[str, Any]) -> dict[str, Any]:
    """The values in a row's configuration that differ from Table 3 as `configs` now defines it.

    A row states its protocol relative to the defaults at the time it was written.

    Args:
        task: of the row.
        attention: of the row; the result is empty for one that is not ours, or for such a task.
        values: flat, from JSON; missing keys count as unchanged.
    """
    defaults = defaults_of(task, attention)
    return {
        key: value for key, value in values.items() if key in defaults and defaults[key] != value
    }


def identity(values: dict[str, Any]) -> dict[str, Any]:
    """The part of a flat configuration that identifies a run: all but the execution keys."""
    return {key: value for key, value in values.items() if key not in _EXECUTION}


def changed_keys(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Keys by which two flat configurations are different runs."""
    one, other = identity(one), identity(other)
    keys = [*one, *(key for key in other if key not in one)]
    return [key for key in keys if one.get(key) != other.get(key)]


def _difference(config: config_dict.ConfigDict, ignored: tuple[str, ...]) -> dict[str, Any]:
    defaults = _defaults(config.task, config.model.attention.name)
    flat = flatten(config)
    return {
        key: value
        for key, value in flat.items()
        if key not in ignored and defaults.get(key) != value
    }


@functools.cache
def _defaults(task: str, attention: str) -> dict[str, Any]:
    return flatten(load_config(f"{CONFIGS / task}.py:{attention}"))


@functools.cache
def defaults_of(task: str, attention: str) -> dict[str, Any]:
    """Table 3 as `configs` now defines it, without neutral keys, flat and as read back from JSON.

    Empty for a task or an attention that is not ours.
    """
    if task not in TASKS or attention not in ATTENTIONS:
        return {}
    defaults = json.loads(json.dumps(_defaults(task, attention)))
    return {key: value for key, value in defaults.items() if key not in _NEUTRAL}


def describe(config: config_dict.ConfigDict) -> str:
    """Every key and its value, one per line, with the default if changed; then the protocol."""
    defaults, changed = _defaults(config.task, config.model.attention.name), _difference(config, ())
    lines = [
        f"{key} = {value!r}" + f"  # default: {defaults.get(key)!r}" * (key in changed)
        for key, value in flatten(config).items()
    ]
    formats = ", ".join(f"{key}={changed[key]}" for key in NUMBER_FORMAT if key in changed)
    format_note = f"; another number format: {formats}" * bool(formats)
    return "\n".join([*lines, f"protocol: {protocol_of(config)}{format_note}"])
