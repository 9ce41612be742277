"""How the maintenance and the job of a table keep out of each other's way: by properties of the table (ADR 31)."""

from __future__ import annotations

from collections.abc import Mapping

from calve.maintenance import Kind

TURN = "calve.turn"
"""The kind of work that the maintenance asks the job to do; the job removes it when it is done."""
TURN_KINDS: tuple[Kind, ...] = ("compact", "deletes")
"""Work that replaces data files, from which rounds of tables with keys delete rows."""
HOLD = "calve.hold"
"""Until when, in epoch seconds, nobody may be forgotten: files are being written that no snapshot names yet."""
HOLD_S = 1_800.0


def is_held(properties: Mapping[str, str], now: float) -> bool:
    return now < float(properties.get(HOLD, 0))
