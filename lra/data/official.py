"""Compare prepared data with the official data set, by counts and by a hash of the content."""

import hashlib
from collections.abc import Mapping


class Fingerprint:
    """Order-independent hash of a collection of labelled examples.

    It is the sum of the examples' sha256 modulo 2**256, so sources with the same examples in
    another order (archive, TFDS) agree. A sum rather than an exclusive or, which would cancel
    duplicates.
    """

    def __init__(self) -> None:
        self._sum = 0

    def add(self, label: int, content: bytes) -> None:
        """Add an example; `label` is in 0 to 255."""
        digest = hashlib.sha256(bytes([label]) + content).digest()
        self._sum = (self._sum + int.from_bytes(digest, "big")) % 2**256

    def __str__(self) -> str:
        return f"{self._sum:064x}"


def compare(
    counts: Mapping[str, int],
    official_counts: Mapping[str, int],
    noun: str,
    *,
    same_content: bool = True,
) -> str:
    """Return the data mark for the manifest: `official`, or `differs (...)` with the difference.

    Args:
        counts: Number of examples per split.
        official_counts: Number of examples per split of the official data set.
        noun: Plural noun for the examples.
        same_content: Whether the hashes agree too; True if no official hash is known.
    """
    if counts != official_counts:
        return f"differs ({' / '.join(f'{count:,}' for count in counts.values())} {noun})"
    return "official" if same_content else f"differs (other content of the {noun})"
