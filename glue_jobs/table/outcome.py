"""The outcome of a round, and the values that the next round of the table may reuse."""

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
    """Values that a table's loop keeps between rounds. All of it may be lost at any time.

    `bytes_per_record`: from the last round, else from the table's history or a sample.
    `engine`: the engine that made the newest rows. `stood`: sequence number of the snapshot that last gave the
    position.
    `lacks_values`: a round had updates without all values. `layout_refused`: the layout of calve.yaml that Iceberg
    refused, logged once.
    `read_to`: offsets read beyond the table's position that held no record (transaction markers).
    It counts only for the round and the incarnation of the topic in `read_from`.
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
    """The outcome of a round. `more`: the topic has records beyond it. `snapshot` None: there was nothing to commit.

    `complete_until`: every record that arrived before this time (epoch seconds) has been read; None if unknown.
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
