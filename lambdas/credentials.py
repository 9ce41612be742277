"""The secret of a user with a password, or of an API key, as a rotation reads it."""

from __future__ import annotations

import json

from calve.errors import Fatal
from calve.secrets import EXAMPLE, Redacted


def credentials_of(text: str | None) -> Redacted:
    """What a version of the secret holds.

    Raises:
        Fatal: it holds no user.
    """
    try:
        raw = json.loads(text or "")
        known = bool(raw["username"] and raw["password"])
    except (ValueError, TypeError, KeyError):
        raw, known = {}, False
    if not known:  # outside of the handler: a JSON error carries the text that it could not read
        raise Fatal("the secret holds no user yet", fix=f"write the first one: {EXAMPLE}")
    return Redacted(raw)
