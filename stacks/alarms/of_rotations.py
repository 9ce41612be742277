"""Alarms of keys that should change by themselves and do not."""

from __future__ import annotations

from stacks.alarms.board import Board, Says
from stacks.rotation import Rotation


def of_rotation(board: Board, keys: str, rotation: Rotation) -> None:
    """keys: what they open."""
    board.errors(
        f"{keys}-keys-not-rotated",
        rotation.function.function,
        Says(f"The keys of {keys} were not changed; the old ones stay valid.", "KEYS-keys-not-rotated"),
    )
