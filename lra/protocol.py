"""How a configuration differs from the defaults, and whether it is the protocol of Table 3."""

import functools
import json
from typing import Any

from ml_collections import config_dict

from configs.default import ATTENTIONS
from lra.published import TABLE3, TABLE_TASKS
from lra.row import NUMBER_FORMAT
from lra.settings import CONFIGS, flatten, load_config
from lra.tasks import TASKS

TABLE3_PROTOCOL = "table3"

# Prefix of the config keys that are options of the attention.
ATTENTION_KEYS = "model.attention."

# Keys that determine how a run is executed, not what it computes.
_EXECUTION = ("mesh.seed", "mesh.data", "train.steps_per_call", "train.checkpoint_seconds")
_NEUTRAL = ("seeds", *NUMBER_FORMAT, *_EXECUTION)


def overrides_of(config: config_dict.ConfigDict) -> dict[str, Any]:
    """Keys that differ from the task's defaults, without seeds and execution keys."""
    return _difference(config, ("seeds", *_EXECUTION))


def protocol_of(config: config_dict.ConfigDict) -> str:
    """`table3`, or `changed: train.steps=500, ...` if keys other than neutral ones differ.

    So `table3` means the task's defaults, also of tasks and attentions that are not in Table 3.
    Neutral keys are seeds, number formats, mesh, steps per call and the checkpoint interval.
    """
    changed = _difference(config, _NEUTRAL)
    if not changed:
        return TABLE3_PROTOCOL
    return "changed: " + ", ".join(f"{key}={value}" for key, value in changed.items())


def departures(task: str, attention: str, values: dict[str, Any]) -> dict[str, Any]:
    """Values of a row's configuration that differ from Table 3 as `configs` defines it now.

    The protocol in a row is relative to the defaults when the row was written.

    Args:
        task: Task of the row.
        attention: Attention of the row; if it or the task is unknown, the result is empty.
        values: Flat configuration of the row, from JSON; missing keys count as unchanged.
    """
    defaults = defaults_of(task, attention)
    return {
        key: value for key, value in values.items() if key in defaults and defaults[key] != value
    }


def without_execution(values: dict[str, Any]) -> dict[str, Any]:
    """Part of a flat configuration that identifies a run: all but the execution keys."""
    return {key: value for key, value in values.items() if key not in _EXECUTION}


def changed_keys(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Keys that differ between two flat configurations, without execution keys."""
    one, other = without_execution(one), without_execution(other)
    return [key for key in one | other if one.get(key) != other.get(key)]


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
    """Flat defaults as `configs` defines them now, without neutral keys and as read from JSON.

    Empty for an unknown task or attention.
    """
    if task not in TASKS or attention not in ATTENTIONS:
        return {}
    defaults = json.loads(json.dumps(_defaults(task, attention)))
    return {key: value for key, value in defaults.items() if key not in _NEUTRAL}


def describe(config: config_dict.ConfigDict) -> str:
    """List keys and values, one per line, with the default if changed, and then the protocol."""
    defaults, changed = _defaults(config.task, config.model.attention.name), _difference(config, ())
    lines = [
        f"{key} = {value!r}" + (f"  # default: {defaults.get(key)!r}" if key in changed else "")
        for key, value in flatten(config).items()
    ]
    formats = ", ".join(f"{key}={changed[key]}" for key in NUMBER_FORMAT if key in changed)
    format_note = f"; another number format: {formats}" if formats else ""
    protocol = protocol_of(config)
    in_table = config.task in TABLE_TASKS and config.model.attention.name in TABLE3
    if protocol == TABLE3_PROTOCOL and not in_table:
        protocol += " (the defaults; Table 3 has no such cell)"
    return "\n".join([*lines, f"protocol: {protocol}{format_note}"])
