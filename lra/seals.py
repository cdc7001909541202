"""JSON objects that end with the sha256 of their own text: a flipped bit becomes no value."""

import hashlib
import re

from lra.errors import UserError

_SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"}\s*$')


def seal(text: str) -> str:
    """A JSON object with the sha256 of its text as its last value."""
    return f'{text[:-1]}, "sha256": "{hashlib.sha256(text.encode()).hexdigest()}"}}'


def unseal(content: bytes) -> bytes:
    """The inverse of `seal`; an object without one (written by hand) is returned as it is.

    A damaged seal remains, as a field that the object does not know.

    Raises:
        UserError: the text is not the one that was sealed.
    """
    found = _SEAL.search(content)
    if not found:
        return content
    rest = content[: found.start()] + b"}"
    if hashlib.sha256(rest).hexdigest().encode() != found[1]:
        raise UserError("was edited or damaged (sha256); restore or remove it")
    return rest
