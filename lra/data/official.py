"""Whether prepared data is the official data set: by its counts and by a hash of its content."""

import hashlib
from collections.abc import Mapping


class Fingerprint:
    """A hash of a collection of labelled examples that does not depend on their order.

    The sum of the examples' sha256, modulo 2**256: sources that hold the same examples in another
    order (archive, TFDS) agree. A sum rather than an exclusive or, because there are duplicates.
    """

    def __init__(self) -> None:
        self._sum = 0

    def add(self, label: int, content: bytes) -> None:
        """Takes one example in; `label` in 0 to 255."""
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
    """What the manifest says of the data: `official`, or `differs (...)` and in what.

    Args:
        counts: examples per split.
        official_counts: the same of the official data set.
        noun: what an example is, in the plural.
        same_content: whether the hashes agree too; True where no official hash is known.
    """
    if counts != official_counts:
        return f"differs ({' / '.join(f'{count:,}' for count in counts.values())} {noun})"
    return "official" if same_content else f"differs (other content of the {noun})"
