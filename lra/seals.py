"""JSON objects that end with the sha256 of their own text, so that damage is noticed."""

import hashlib
import json
import re

from lra.errors import UserError

_SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"}\s*$')


def seal(text: str) -> str:
    """Append the sha256 of a JSON object's text to the object, as its last value."""
    return f'{text[:-1]}, "sha256": "{_sha256(text.encode())}"}}'


def unseal(content: bytes) -> bytes:
    """Verify and remove the seal; an object without one (written by hand) is returned as it is.

    The object may have been written again with other spaces, as jq does.

    Raises:
        UserError: If the text is not the one that was sealed.
    """
    match = _SEAL.search(content)
    if match:
        unsealed, digest = content[: match.start()] + b"}", match[1].decode()
    elif b'"sha256"' in content and isinstance(values := json.loads(content), dict):
        digest = values.pop("sha256", None)
        if digest is None:
            return content
        unsealed = json.dumps(values).encode()
    else:
        return content
    if _sha256(unsealed) != digest:
        raise UserError(
            "was edited or damaged (sha256); restore or remove the line, or, if it is meant to "
            "differ, its sha256"
        )
    return unsealed


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
