"""What a round leaves behind in its process: its outcome, and what the next one of the table may remember."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from calve.config.engine_choice import Chosen
from calve.requests.requests import Pause
from calve.rounds.scheduling import Pace
from calve.table.position import Ledger, Offsets, Position, TopicKey


@dataclass(slots=True)
class TableMemory:
    """What a table's loop remembers between rounds; all of it may be lost at any time.

    `bytes_per_record`: as the last round has shown it, or else the table's history or a sample.
    `engine`: what made the newest rows. `stood`: the sequence number of the snapshot that gave the position last.
    `lacks_values`: a round had updates without all values. `layout_refused`: what calve.yaml says of the layout, where the
    table cannot have it: logged once.
    `read_to`: how far offsets were read that held no record, beyond the table's position (transaction markers); it counts
    only while the table stands at the round, and reads the incarnation of the topic, that `read_from` names.
    """

    bytes_per_record: float | None = None
    read_to: Offsets = field(default_factory=dict)
    read_from: tuple[str, TopicKey] | None = None
    engine: Chosen | None = None
    stood: int = 0
    lacks_values: bool = False
    layout_refused: object = None
    committed_at: float = field(default_factory=time.monotonic)
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round did. `more`: records were there that did not fit into it; None snapshot: there was nothing to commit.

    `complete_until`, in epoch seconds: all that had arrived until then has been read; None where that cannot be said.
    `paused`: why nothing was read.
    """

    position: Position
    to: Offsets
    more: bool = False
    snapshot: int | None = None
    ledger: Ledger = field(default_factory=Ledger)
    metrics: dict[str, Any] = field(default_factory=dict)
    commit_ms: int = 0
    complete_until: float | None = None
    paused: Pause | None = None
