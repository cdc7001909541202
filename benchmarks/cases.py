"""Contenders and cases of `benchmarks.speed_memory`: what it compares, and at which sizes."""

import dataclasses
import re
from importlib import metadata

from lra.command_line import literal
from lra.errors import UserError
from lra.near_names import near_match

# The option that follows the method's name in its label.
_LABEL_OPTION = {
    "nystrom": "num_landmarks",
    "linformer": "proj_dim",
    "longformer": "window",
    "performer": "num_features",
    "reformer": "num_hashes",
    "standard": "implementation",
}

# Linformer's levels of sharing projections and their names (arXiv 2006.04768, section 4).
_SHARINGS = {
    ("heads",): "headwise",
    ("heads", "kv"): "key-value",
    ("heads", "kv", "layers"): "layerwise",
}

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
_ID_BYTES = 4

# Third-party implementations of each method: name of the peer -> distribution on PyPI.
PEERS = {
    "standard": {"torch sdpa": "torch", "torch plain": "torch", "jax.nn": "jax"},
    "nystrom": {"transformers": "transformers", "nystrom-attention": "nystrom-attention"},
    "linformer": {"linformer": "linformer"},
    "longformer": {"transformers": "transformers"},
    "performer": {"performer-pytorch": "performer-pytorch"},
    "reformer": {"transformers": "transformers"},
}
OURS = "ours"
_HOLD_SCORES = ("xla", "torch plain", "jax.nn")  # implementations of exact attention


@dataclasses.dataclass(frozen=True)
class Contender:
    """A method in one implementation.

    Attributes:
        method: Name in the attention registry; for a peer, the method it implements.
        options: Options of the attention, as given.
        peer: A key of `PEERS[method]`, or `ours`.
        label: Display name, unique within a run.
    """

    method: str
    options: dict
    peer: str
    label: str

    @property
    def source(self) -> str:
        """`ours`, or the PyPI distribution that provides the implementation."""
        return OURS if self.peer == OURS else PEERS[self.method][self.peer]

    @property
    def framework(self) -> str:
        """`jax` or `torch`."""
        return "jax" if self.source in (OURS, "jax") else "torch"

    @property
    def holds_scores(self) -> bool:
        """Whether the scores of all pairs of positions are in memory at once."""
        implementation = self.options.get("implementation") if self.peer == OURS else self.peer
        return self.method == "standard" and implementation in _HOLD_SCORES


@dataclasses.dataclass(frozen=True)
class Case:
    """Sizes, number format and mode of one measurement; see `lra.efficiency.CostRow`."""

    benchmark: str
    mode: str
    length: int
    batch: int
    dim: int
    heads: int
    dtype: str
    filled: bool = False

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.dim // self.heads

    @property
    def example_bytes(self) -> int:
        """Bytes of one example's arguments and outputs, without mask and label.

        A model takes token ids. A module takes an input and returns an output of the same shape;
        a backward pass adds the gradients of both.
        """
        if self.benchmark == "model":
            return self.length * _ID_BYTES
        arrays = 2 if self.mode == "forward" else 4
        return arrays * self.length * self.dim * _DTYPE_BYTES[self.dtype]


def parse_methods(text: str) -> list[Contender]:
    """Parse the value of `--methods`, e.g. `nystrom:num_landmarks=64:conv_kernel=0,linear`.

    Commas within brackets or quotes belong to an option, as in `linformer:share=('kv','heads')`.

    Raises:
        UserError: If a method or option is unknown, or a contender is listed twice.
    """
    contenders = [_parse_method(part) for part in _split(text) if part]
    if not contenders:
        raise UserError("--methods names no method")
    labels = [contender.label for contender in contenders]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"--methods has '{label}' twice")
    return contenders


def _split(text: str) -> list[str]:
    """Split `text` at commas, except those within brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
        if character == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _parse_method(text: str) -> Contender:
    from models.attention import ATTENTIONS, options_of

    method, *assignments = text.split(":")
    if method not in ATTENTIONS:
        raise UserError(f"unknown attention '{method}'{near_match(method, ATTENTIONS)}")
    options = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UserError(f"'{assignment}' is not OPTION=VALUE in --methods={text}")
        if name not in options_of(method):
            near = near_match(name, options_of(method))
            raise UserError(f"unknown option '{name}' of {method} attention{near}")
        options[name] = literal(value)
    return Contender(method, options, OURS, label_of(method, options, options_of(method)))


def label_of(method: str, options: dict, defaults: dict) -> str:
    """Return a method's display name: name, size, and any other option that was given.

    Linformer's sharing is named as in the paper: `linformer-256 layerwise`.
    """
    rest = {name: value for name, value in options.items() if name != _LABEL_OPTION.get(method)}
    label = method
    if method in _LABEL_OPTION:
        size = (defaults | options)[_LABEL_OPTION[method]]
        if method == "longformer" and isinstance(size, int):
            size = 2 * size + 1  # papers count both sides and the position itself
        label = f"{method} ({size})" if method == "standard" else f"{method}-{size}"
    return " ".join([label, *(_described(name, value) for name, value in rest.items())])


def _described(option: str, value: object) -> str:
    assignment = f"{option}={value}"
    if option != "share" or not isinstance(value, tuple | list):
        return assignment
    return _SHARINGS.get(tuple(sorted(map(str, value))), assignment)


def peers_of(ours: list[Contender], chosen: str) -> tuple[list[Contender], list[str]]:
    """Return third-party implementations of our contenders' methods, with the same options.

    Args:
        ours: Our own contenders.
        chosen: `all`, or comma-separated distributions.

    Returns:
        The installed peers, and one line of text for each peer that is not installed.

    Raises:
        UserError: If a distribution is unknown.
    """
    known = sorted({source for peers in PEERS.values() for source in peers.values()})
    requested = known if chosen == "all" else chosen.split(",")
    for name in requested:
        if name not in known:
            raise UserError(f"unknown peer '{name}'{near_match(name, known)}")
    peers: dict[str, Contender] = {}
    skipped: dict[str, str] = {}
    for own in ours:
        options = {} if own.method == "standard" else own.options
        label = own.method if own.method == "standard" else own.label
        for name, source in PEERS.get(own.method, {}).items():
            peer = Contender(own.method, options, name, f"{label} ({name})")
            missing = [] if source not in requested else _missing_packages(peer)
            if missing:
                install = f"pip install {' '.join(missing)}"
                skipped[peer.label] = f"skipped {peer.label}: not installed; {install}"
            elif source in requested:
                peers[peer.label] = peer
    return list(peers.values()), list(skipped.values())


def _missing_packages(peer: Contender) -> list[str]:
    required = [peer.source] if peer.framework == "jax" else [peer.source, "torch"]
    return sorted({name for name in required if version_of(name) is None})


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def parse_widths(text: str, flag: str = "--widths") -> list[tuple[int, int]]:
    """Parse `64x2,768x12`, the value of a flag, into pairs of width and number of heads.

    Raises:
        UserError: If the format differs, or the number of heads does not divide the width.
    """
    widths = []
    for part in text.split(","):
        if not re.fullmatch(r"[1-9][0-9]*x[1-9][0-9]*", part):
            raise UserError(f"{flag}: '{part}' is not WIDTHxHEADS, as in 64x2")
        dim, heads = map(int, part.split("x"))
        if dim % heads:
            raise UserError(f"{flag}: {heads} heads do not divide a width of {dim}")
        widths.append((dim, heads))
    return widths
