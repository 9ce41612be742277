"""How the maintenance asks the job of a table for a turn: by a property, which the job removes when the turn is over (ADR 31)."""

from __future__ import annotations

from calve.maintenance import Kind

TURN = "calve.turn"
"""The kind of work that is asked for."""
TURN_KINDS: tuple[Kind, ...] = ("compact", "deletes")
"""Work that replaces data files, from which rounds of tables with keys delete rows."""
