"""Rotation of the signing keys. Two are valid at a time, so a link survives one rotation, but not two."""

from __future__ import annotations

from calve.errors import Fatal
from lambdas.rotation import Rotation
from lambdas.tokens import BadKeys, Keys, new_link_id, sign, verify


class LinkKeys:
    """`lambdas.rotation.Subject`: the functions that sign and verify read the secret themselves, so `set` does nothing."""

    def create(self, version: str, current: str | None) -> str:
        keys = _keys(current)
        return (keys.rotated() if keys else Keys.first()).to_json()

    def set(self, pending: str, current: str | None) -> None:
        pass

    def test(self, pending: str, current: str | None) -> None:
        keys = Keys.parse(pending)
        for signing in (keys, _keys(current)):
            if signing and not verify(keys, sign(signing, new_link_id(), 1), now=0):
                raise Fatal("the new link keys would refuse links that are valid now")

    def finished(self, current: str) -> None:
        pass


def make_first(rotation: Rotation) -> bool:
    """Write the first key, unless there are keys; a generated text is replaced."""
    if _keys(rotation.current()) is not None:
        return False
    rotation.put(Keys.first().to_json())
    return True


def _keys(text: str | None) -> Keys | None:
    try:
        return Keys.parse(text) if text else None
    except BadKeys:
        return None
