"""Checks of config values that need neither the model nor the data."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from lra.errors import UserError
from lra.pace import MAX_STEPS_PER_CALL
from lra.tasks import get_task

DTYPES = ("float32", "bfloat16")
MATMUL_PRECISIONS = ("float32", "tensorfloat32", "bfloat16")

# Names that keys, and options of attentions, can take. Those of models are listed here again, since
# importing models would import JAX.
CHOICES = {
    "dtype": DTYPES,
    "matmul_precision": MATMUL_PRECISIONS,
    "model.positions": ("learned", "sinusoidal", "none"),
    "model.pooling": ("padded_mean", "mean", "max", "first"),
}
CHOICES_OF = {
    "standard": {"implementation": ("auto", "xla", "chunked", "cudnn", "flash")},
    "linformer": {
        "projection": ("linear", "conv", "mean_pool", "max_pool"),
        "share": ("kv", "heads", "layers"),
    },
    "performer": {"kernel": ("softmax", "relu")},
}
# Keys whose values must be at least 1, at least 0, or in [0, 1); then options of attentions
# likewise. Other keys are checked below; models check what depends on the data.
_POSITIVE = (
    "model.num_layers",
    "model.dim",
    "model.mlp_dim",
    "model.num_heads",
    "model.head_dim",
    "train.steps",
    "train.batch_size",
    "train.eval_every",
    "train.eval_batch_size",
    "train.microbatches",
)
_NOT_NEGATIVE = (
    "train.warmup_steps",
    "train.learning_rate",
    "train.weight_decay",
    "train.max_grad_norm",
    "train.steps_per_call",
    "train.checkpoint_seconds",
    "mesh.seed",
    "mesh.data",
)
_FRACTIONS = ("model.dropout", "data.holdout")
_POSITIVE_OF = {
    "nystrom": ("num_landmarks", "pinv_iterations"),
    "performer": ("num_features",),
    "reformer": ("num_hashes", "chunk_length"),
    "longformer": ("window",),
}
_NOT_NEGATIVE_OF = {"nystrom": ("conv_kernel",), "performer": ("redraw_steps",)}
_FRACTIONS_OF = {"standard": ("dropout",), "performer": ("epsilon",)}
_LARGEST_INTEGER = 2**31 - 1  # limit of array sizes and of step numbers
_LARGEST_RATE = 1e30  # an update of Adam moves a parameter by about the learning rate


def check_values(flat: Mapping[str, Any]) -> None:
    """Raise UserError for values that no run can have; the message names the key and the fix.

    Args:
        flat: Values by dotted key.
    """
    if not isinstance(flat["task"], str):
        raise UserError("the config sets no task; name that of a task, as configs/listops.py")
    task = get_task(flat["task"])
    if flat["data.zero_is_padding"] and not task.pixels:
        raise UserError(f"data.zero_is_padding is for pixels; {task.name} marks padding by length")
    if flat["data.zero_is_padding"] and flat["model.pooling"] == "first":
        raise UserError(
            "model.pooling=first would read a pixel that is nearly always black, thus padding, and "
            "give 0 for every image; set data.zero_is_padding=False or take another pooling"
        )
    for key, value in flat.items():
        if isinstance(value, int) and value > _LARGEST_INTEGER:
            raise UserError(f"{key} must be at most {_LARGEST_INTEGER:,}, not {value}")
    _check_numbers(flat)
    options = CHOICES_OF.get(flat["model.attention.name"], {})
    for key, choices in (
        CHOICES | {f"model.attention.{option}": choices for option, choices in options.items()}
    ).items():
        _check_names(key, flat[key], choices)
    _check_seeds(flat["seeds"])
    _check_rates(flat["train.learning_rate"], flat["train.weight_decay"])
    _check_sizes(flat)
    _check_is_text("train.init_from", flat["train.init_from"])


def _check_numbers(flat: Mapping[str, Any]) -> None:
    """Check the ranges of single numbers."""
    for key in _with_options(_POSITIVE, _POSITIVE_OF, flat):
        if flat[key] < 1:
            raise UserError(f"{key} must be at least 1, not {flat[key]}")
    for key in _with_options(_NOT_NEGATIVE, _NOT_NEGATIVE_OF, flat):
        if not 0 <= flat[key] < float("inf"):
            raise UserError(f"{key} must be a number from 0 on, not {flat[key]}")
    for key in _with_options(_FRACTIONS, _FRACTIONS_OF, flat):
        if not 0 <= flat[key] < 1:
            raise UserError(f"{key} must be at least 0 and less than 1, not {flat[key]}")
    for key, value in flat.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key} must be a finite number, not {value}")


def _with_options(
    keys: tuple[str, ...], options_of: Mapping[str, tuple[str, ...]], flat: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the keys, then those of the options of the configuration's attention."""
    yield from keys
    for option in options_of.get(flat["model.attention.name"], ()):
        yield f"model.attention.{option}"


def _check_names(key: str, value: str | tuple[Any, ...], choices: tuple[str, ...]) -> None:
    """Check a name, or each of several."""
    which = f"each name in {key}" if isinstance(value, tuple) else key
    for name in value if isinstance(value, tuple) else (value,):
        if name not in choices:
            raise UserError(f"{which} must be one of {', '.join(choices)}, not {name!r}")


def _check_is_text(key: str, value: str) -> None:
    """Check that a path can be written to rows: paths need not be valid text, but rows must."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UserError(f"{key}={value!r} is no text in UTF-8; rename the folder") from None
    if not {"\0", "\n", "\r"}.isdisjoint(value):
        raise UserError(f"{key}={value!r} has a zero byte or a line break; rename the folder")


def _check_seeds(seeds: tuple[int, ...]) -> None:
    if not seeds:
        raise UserError("seeds is empty; give at least one, e.g. --config.seeds='(0,)'")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"seeds {seeds} names a seed twice")
    for seed in seeds:
        if not 0 <= seed < 2**31:
            raise UserError(f"a seed is an integer from 0 to 2**31 - 1, not {seed}")


def _check_rates(learning_rate: float, weight_decay: float) -> None:
    """Check bounds within which a diverging seed is frozen while its parameters are finite."""
    for key, rate in (("learning_rate", learning_rate), ("weight_decay", weight_decay)):
        if rate > _LARGEST_RATE:
            raise UserError(f"train.{key} must be at most {_LARGEST_RATE:g}, not {rate}")
    if learning_rate * weight_decay > 1:
        raise UserError(
            f"train.learning_rate * train.weight_decay = {learning_rate} * {weight_decay} takes "
            "more than each weight away in a step; it is at most 1"
        )


def _check_entries(proj_dim: tuple, layers: int, heads: int) -> None:
    """Raise UserError unless there is a size per layer, or per head of a layer."""
    name = f"model.attention.proj_dim = {proj_dim}"
    if len(proj_dim) != layers:
        raise UserError(
            f"{name} has {len(proj_dim)} entries for model.num_layers = {layers} layers"
        )
    for entry in proj_dim:
        if isinstance(entry, tuple) and (len(entry) != heads or tuple in map(type, entry)):
            raise UserError(
                f"{name}: {entry} is not one size for each of model.num_heads = {heads} heads"
            )


def _check_sizes(flat: Mapping[str, Any]) -> None:
    layers, dim = flat["model.num_layers"], flat["model.dim"]
    heads, head_dim = flat["model.num_heads"], flat["model.head_dim"]
    batch_size, microbatches = flat["train.batch_size"], flat["train.microbatches"]
    if flat["train.steps_per_call"] > MAX_STEPS_PER_CALL:
        raise UserError(
            f"train.steps_per_call = {flat['train.steps_per_call']} is more than "
            f"{MAX_STEPS_PER_CALL}"
        )
    if flat["model.attention.name"] == "linformer":
        proj_dim = flat["model.attention.proj_dim"]
        if isinstance(proj_dim, tuple):
            _check_entries(proj_dim, layers, heads)
    if heads * head_dim != dim:
        raise UserError(
            f"model.num_heads * model.head_dim = {heads} * {head_dim} is not model.dim = {dim}; "
            "set the three together"
        )
    if batch_size % microbatches:
        raise UserError(
            f"train.batch_size = {batch_size} is not a multiple of train.microbatches = "
            f"{microbatches}"
        )
