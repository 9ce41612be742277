"""Backfill: make the rows of an offset range again and replace the old ones, in one commit that moves no offset (ADR 32).

It replaces only rows whose records were rows before and are rows now, so the ledgers of the original rounds stay true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from calve.config.job import Start
from calve.errors import CalveError
from calve.requests.requests import WaitingRequest
from calve.table.position import Offsets
from calve.table.summary import BACKFILL

Range = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Request(WaitingRequest):
    """The records from `start` to `to` (exclusive); each end is offsets of partitions, or a record timestamp."""

    NAME: ClassVar[str] = BACKFILL
    by: str
    start: Start
    to: Start


def range_of(start: Offsets, to: Offsets, *, held: Offsets, log_start: Offsets) -> Range:
    """The offsets between both ends that the table has read. Raises CalveError: there are none, or some have expired."""
    found = {p: (o, min(to[p], held[p])) for p, o in start.items() if p in to and p in held}
    found = {p: (a, b) for p, (a, b) in found.items() if a < b}
    if not found:
        raise CalveError("the table has read no records of this range")
    if gone := sorted(p for p, (a, _) in found.items() if a < log_start.get(p, 0)):
        raise CalveError(
            f"the topic no longer holds the range: partition {gone[0]} begins at {log_start[gone[0]]} now"
        )
    return found


def remade_json(offsets: Range) -> str:
    return json.dumps({str(p): [a, b] for p, (a, b) in sorted(offsets.items())})
