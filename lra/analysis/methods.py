"""The attentions that are compared with exact attention, each as a function of its size."""

import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lra.errors import UserError
from lra.near_names import near_match
from models.attention import ATTENTIONS

_ROUNDS = (1, 2, 4, 8, 16)  # hash rounds
_LARGEST_CHUNK = 64  # Reformer's chunk length in the benchmark
# Options whose value bounds the rank of the attention matrix.
_RANKS = ("num_landmarks", "proj_dim", "num_features")
_AT_MOST_THE_LENGTH = ("num_landmarks", "proj_dim", "window")


class Method(NamedTuple):
    """An attention as a function of its size.

    Attributes:
        attention: Name of the attention in the registry.
        option: Name of the option that is its size; '' if it has none.
        variant: Label that distinguishes methods with the same attention.
        options: Other options that are not at their defaults.
    """

    attention: str
    option: str
    variant: str = ""
    options: Mapping[str, Any] = types.MappingProxyType({})

    def options_at(self, size: int, length: int) -> dict[str, Any]:
        """Return the options for `models.attention.make`."""
        options = dict(self.options)
        if self.attention == "reformer":
            options["chunk_length"] = self._chunk_at(length)
        return options | ({self.option: size} if self.option else {})

    def rank_at(self, size: int, length: int) -> int | None:
        """Return a bound on the matrix's rank, or the number of keys that a query sees.

        It is at most the length, and None if the size is neither.
        """
        if self.option == "num_hashes":
            size *= 2 * self._chunk_at(length)
        elif self.option == "window":
            size = 2 * size + 1
        elif self.option not in _RANKS:
            return None
        return min(size, length)

    def _chunk_at(self, length: int) -> int:
        return self.options.get("chunk_length", chunk_length(length))


METHODS = (
    # Without its convolution, which is a skip connection around the attention, not part of it.
    Method("nystrom", "num_landmarks", options={"conv_kernel": 0}),
    Method("linformer", "proj_dim", "mean pooling", {"projection": "mean_pool"}),
    Method("linformer", "proj_dim", "random E"),
    Method("performer", "num_features"),
    Method("reformer", "num_hashes"),
    Method("longformer", "window"),
    Method("linear", ""),
)


def chunk_length(length: int) -> int:
    """Return Reformer's chunk length: 64, or a quarter of the length if that is less."""
    return max(1, min(_LARGEST_CHUNK, length // 4))


def choose_methods(names: Iterable[str] | None) -> list[Method]:
    """Return the methods of the named attentions, by default `METHODS`.

    Of another attention of the registry this is one method, at its default options.

    Raises:
        UserError: A name is unknown, or that of exact attention.
    """
    if names is None:
        return list(METHODS)
    others = [name for name in ATTENTIONS if name != "standard" and not methods_of(name)]
    known = [*METHODS, *(Method(name, "") for name in others)]
    known_names = {method.attention for method in known}
    for name in names:
        if name == "standard":
            raise UserError("--methods: standard is what the others are compared with")
        if name not in known_names:
            raise UserError(f"--methods: no attention '{name}'{near_match(name, known_names)}")
    return [method for method in known if method.attention in names]


def methods_of(name: str) -> list[Method]:
    """Return those of `METHODS` that are this attention."""
    return [method for method in METHODS if method.attention == name]


def sizes_of(method: Method, length: int, wanted: Iterable[int] | None) -> list[int]:
    """Return the sizes of a curve: those wanted that fit the length, by default powers of two.

    The default goes from a thirty-second of the length to all of it. The error of Performer falls
    slowly, so its features are powers of four up to eight times the length. Hash rounds are always
    1 to 16.
    """
    if not method.option:
        return [0]
    if method.option == "num_hashes":
        return list(_ROUNDS)
    if wanted is None:
        wanted = {2**i for i in range(1, 30) if length // 32 <= 2**i < length} | {length}
        if method.option == "num_features":
            wanted = {4**i for i in range(1, 15) if length // 32 <= 4**i < 8 * length}
        if method.option == "window":
            wanted = {size // 2 for size in wanted}
    if method.option in _AT_MOST_THE_LENGTH:
        wanted = (size for size in wanted if size <= length)
    return sorted(set(wanted))


def too_large(
    methods: Iterable[Method], length: int, wanted: Iterable[int] | None
) -> list[tuple[Method, int]]:
    """Return methods and wanted sizes that `sizes_of` leaves out.

    Only the first of several methods with the same option is named.
    """
    first_of_option = {method.option: method for method in reversed(list(methods))}
    return [
        (method, size)
        for option, method in first_of_option.items()
        for size in wanted or ()
        if option in _AT_MOST_THE_LENGTH and size > length
    ]
