"""JSON objects that end with the sha256 of their own text, so that damage is noticed."""

import hashlib
import re

from lra.errors import UserError

_SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"}\s*$')


def seal(text: str) -> str:
    """Append the sha256 of a JSON object's text to the object, as its last value."""
    return f'{text[:-1]}, "sha256": "{hashlib.sha256(text.encode()).hexdigest()}"}}'


def unseal(content: bytes) -> bytes:
    """Verify and remove the seal; an object without one (written by hand) is returned as it is.

    A malformed seal is not removed, and remains as a field that readers will not know.

    Raises:
        UserError: If the text is not the one that was sealed.
    """
    match = _SEAL.search(content)
    if not match:
        return content
    unsealed = content[: match.start()] + b"}"
    if hashlib.sha256(unsealed).hexdigest().encode() != match[1]:
        raise UserError("was edited or damaged (sha256); restore or remove the line")
    return unsealed
