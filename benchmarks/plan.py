"""The flags of `benchmarks.speed_memory`, with those set by published tables, and their cases."""

import argparse
import itertools
import math

from benchmarks.cases import Case, parse_widths
from lra import efficiency
from lra.command_line import positive_integer
from lra.errors import UserError
from lra.near_names import near_match
from lra.setting_values import DTYPES

ALL_METHODS = (
    "standard:implementation=xla,standard:implementation=chunked,nystrom:num_landmarks=64,"
    "linformer:proj_dim=256,longformer:window=128,performer:num_features=256,"
    "reformer:num_hashes=2,linear"
)
LENGTHS = "512,1024,2048,4096,8192,16384,32768,65536"
# Layerwise sharing, as in the paper's section 5.3: one projection for all heads.
_LINFORMERS = ",".join(
    f"linformer:proj_dim={k}:share=('heads','kv','layers')" for k in (128, 256, 512, 1024, 2048)
)
_DEFAULTS = {
    "benchmark": "module",
    "methods": ALL_METHODS,
    "lengths": LENGTHS,
    "modes": "forward,forward_backward",
    "dtypes": "float32,bfloat16",
    "widths": "64x2,768x12",
    "batch": "1,fill",
}
# The flags that each published table sets; the papers measured inference.
TABLES = {
    "nystromformer_1": {
        "methods": "standard:implementation=xla,linformer:proj_dim=256,longformer:window=128,"
        "nystrom:num_landmarks=64,nystrom:num_landmarks=32",
        "lengths": "512,1024,2048,4096,8192",
        "modes": "forward",
        "dtypes": "float32",
        "widths": "768x12",
        "batch": "1",
    },
    "linformer_3": {
        "methods": f"standard:implementation=xla,{_LINFORMERS}",
        "modes": "forward",
        "dtypes": "float32",
        "widths": "768x12",
        "batch": "1,fill",
    },
    "linformer_figure_2": {
        "benchmark": "fixed_tokens",
        "methods": f"standard:implementation=xla,{_LINFORMERS}",
        "modes": "forward",
        "dtypes": "float32",
        "widths": "768x12",
    },
    "lra_2": {"benchmark": "model", "lengths": "1024,2048,3072,4096", "dtypes": "float32"},
}
_MODEL = {"modes": "forward_backward", "widths": "64x2", "batch": "32"}  # as in Text's config
FILL = "fill"
_TOKENS = 65_536  # of fixed_tokens


def settle(options: argparse.Namespace) -> dict:
    """Parse the flags that a table may set: as given, else those of the table, else defaults.

    Raises:
        UserError: If a value is invalid.
    """
    base = dict(_DEFAULTS) | TABLES.get(options.table, {})
    given = {name: value for name in _DEFAULTS if (value := getattr(options, name)) is not None}
    flags = base | given
    if flags["benchmark"] == "model":
        for name in ("modes", "widths"):
            if name in given:
                raise UserError(f"--{name} is set by the configuration of Text for model")
        if FILL in given.get("batch", "").split(","):
            raise UserError("--batch=fill is for module: a step of model is that of its own batch")
        flags |= _MODEL | given
    if flags["benchmark"] == "fixed_tokens":
        if "batch" in given:
            raise UserError("--batch is --tokens / length for fixed_tokens")
        flags["batch"] = "1"
    elif options.tokens is not None:
        raise UserError("--tokens is for fixed_tokens: --benchmark=fixed_tokens")
    flags["tokens"] = _TOKENS if options.tokens is None else options.tokens
    positive = ("threads", "tokens", "repeats", "max_seconds", "fill_seconds", "memory_limit_gb")
    for name in positive:
        if getattr(options, name) is not None and not 0 < getattr(options, name) < float("inf"):
            raise UserError(f"--{name} must be greater than 0")
    flags["modes"] = _choose("modes", flags["modes"], efficiency.MODES)
    flags["dtypes"] = _choose("dtypes", flags["dtypes"], DTYPES)
    flags["widths"] = parse_widths(flags["widths"])
    flags["lengths"] = _positive("lengths", flags["lengths"].split(","))
    batches = flags["batch"].split(",")
    flags["batch"] = _positive("batch", [part for part in batches if part != FILL])
    if FILL in batches:
        flags["batch"] = [*sorted({1, *flags["batch"]}), FILL]
    return flags


def _choose(flag: str, text: str, known: tuple[str, ...]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise UserError(f"--{flag}: unknown '{name}'{near_match(name, known)}")
    return [name for name in known if name in names]


def _positive(flag: str, parts: list[str]) -> list[int]:
    """Parse positive integers; return the distinct ones in ascending order."""
    try:
        return sorted({positive_integer(part) for part in parts})
    except argparse.ArgumentTypeError as error:
        raise UserError(f"--{flag}: {error}") from None


def cases_of(flags: dict) -> list[Case]:
    """Return the cases in the order of measuring: short before long, batch 1 before filled ones.

    Raises:
        UserError: If a fixed number of tokens is not a multiple of every length.
    """
    cases = []
    series = itertools.product(flags["widths"], flags["dtypes"], flags["modes"])
    for (dim, heads), dtype, mode in series:
        for length, batch in itertools.product(flags["lengths"], flags["batch"]):
            if flags["benchmark"] == "fixed_tokens":
                batch = _sequences(flags["tokens"], length, flags["lengths"])
            filled = batch == FILL
            sizes = {"length": length, "batch": 1 if filled else batch, "dim": dim, "heads": heads}
            case = Case(
                benchmark=flags["benchmark"], mode=mode, dtype=dtype, filled=filled, **sizes
            )
            cases.append(case)
    return cases


def _sequences(tokens: int, length: int, lengths: list[int]) -> int:
    """Return the batch whose sequences have exactly `tokens` tokens in total."""
    if tokens < length:
        raise UserError(
            f"--tokens={tokens} are fewer than the length {length}; give more, or shorter --lengths"
        )
    if tokens % length:
        raise UserError(
            f"--tokens={tokens} are no whole sequences of length {length}; give --lengths that "
            f"divide them, or a multiple of {math.lcm(*lengths)}"
        )
    return tokens // length
