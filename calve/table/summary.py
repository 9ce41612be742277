"""Every name that calve stores in a table: summary entries and properties. The only reader and writer of summaries.

The table is the checkpoint (ADR 1). Names never change: tables of earlier releases have them. Entries of a summary:

| key | value |
| --- | --- |
| `calve.format` | 1, 2 from a table's first redrive on, 3 under a mode, 4 for totals; a newer release reads older positions |
| `calve.round` | uuid of the round; finds an ambiguous commit again |
| `calve.writer` | epoch of the writer: uuid of the process that committed |
| `calve.cluster_id`, `calve.topic`, `calve.topic_id` | the topic read by this round |
| `calve.from`, `calve.to` | JSON `{"<cluster id>/<topic id>": {"<partition>": next offset}}` |
| `calve.ledger` | JSON, see `Ledger` |
| `calve.dead_letters` | JSON of `DeadLetterRound`: the newest round that had rejects, or redrive; carried forward |
| `calve.mode` | JSON of how records become rows, where not every record is one (`calve.modes.keys`); carried forward |
| `calve.redrives` | how many redrives the table's history holds; carried forward |
| `calve.redrive` | id of the request that this commit is a part of (`calve.requests.redrive`) |
| `calve.maintenance` | what a commit did that is no round; it says the position again, with the round's id |
| `calve.metrics` | JSON of the round's figures (lag, freshness, bytes, files, times) |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from calve.errors import Suspended
from calve.table.position import (
    DeadLetterRound,
    Ledger,
    Offsets,
    Position,
    TopicKey,
    decode_offsets,
    encode_offsets,
)

FORMAT = 4
FIRST_MODES = 3
"""A release that knows these modes alone must not write a table of another: it would give it the columns of the records."""
WITHOUT_MODE = 2
"""A release that knows no modes must not write a table that has one: it would append what replaces rows."""
WITHOUT_REDRIVES = 1
"""A release that knows no redrives must not write a table that has had one: it would forget which letters came back."""

FORMAT_OF, ROUND, WRITER = "calve.format", "calve.round", "calve.writer"
CLUSTER_ID, TOPIC, TOPIC_ID = "calve.cluster_id", "calve.topic", "calve.topic_id"
FROM, TO, LEDGER, METRICS = "calve.from", "calve.to", "calve.ledger", "calve.metrics"
DEAD_LETTERS, REDRIVES, MODE = "calve.dead_letters", "calve.redrives", "calve.mode"
MAINTENANCE = "calve.maintenance"
"""What a commit of maintenance did; it is no round, and says no offsets that it read."""
WORK = "calve.work"
"""The id of a piece of maintenance, by which its commit is found again."""
BASE = "calve.base"
"""Of dead letters that wait on a branch: the round at which main stood."""
WITHDRAWN = "calve.withdrawn"
"""JSON: rounds of dead letters that a commit took back."""
REMADE = "calve.remade"
"""JSON: offsets of each partition whose rows a backfill made again."""
STANDING = (FORMAT_OF, ROUND, WRITER, CLUSTER_ID, TOPIC, TOPIC_ID, TO, DEAD_LETTERS, REDRIVES, MODE)
"""Entries that a commit carries on which moves no offset."""
ANNOUNCED = "announced"
"""In `METRICS`: the sequence number up to which the table's snapshots had been announced (`calve.outputs.announcement`)."""
COUNTS = "counts"
"""In `METRICS`: a `column`, appended rows by its `values`, and how many `other` rows there are."""

# Requests of an operator: a property of the table while they wait, and an entry of the commit that answers them.
REDRIVE, FORGET, BACKFILL, TRAVEL = "calve.redrive", "calve.forget", "calve.backfill", "calve.travel"

# Properties of a table.
INITIALISED, STATE, EARLIER = "calve.initialised", "calve.state", "calve.earlier"
TOPIC_KEY = "calve.topic-key"
"""The incarnation of the topic that the table was made for, as `TopicKey` writes itself."""
COMPLETE_UNTIL, COMPLETE_ROUND = "calve.complete-until", "calve.complete-round"
REDRIVE_RESULT, PAUSED, HISTORY = "calve.redrive-result", "calve.paused", "calve.history."
FORGET_FOUND, FORGOTTEN, FORGET_LEFT = "calve.forget-found", "calve.forgotten", "calve.forget-left"
TURN, HOLD, RETAINED = "calve.turn", "calve.hold", "calve.retained"
FIELDS, TOTALS, EMITTED, SETTINGS = "calve.fields", "calve.totals", "calve.emitted", "calve.settings"
POSITION_TAG = "calve_position"
"""The tag that keeps the snapshot of the position through expiry by others."""

Summary = Mapping[str, str]


def round_of(summary: Summary) -> str | None:
    """The round that wrote it, or whose position it carries on; None: a commit of others."""
    return summary.get(ROUND)


def is_round(summary: Summary) -> bool:
    """Whether the commit read offsets, or answered a request: it is more than a carried position."""
    return FROM in summary


def starts_of(summary: Summary) -> dict[TopicKey, Offsets]:
    """Where the round began to read; nothing of a commit that is no round."""
    return decode_offsets(summary.get(FROM, "{}"))


def ends_of(summary: Summary) -> dict[TopicKey, Offsets]:
    """The committed offsets; nothing where there is no position."""
    return decode_offsets(summary.get(TO, "{}"))


def as_stored(summary: Summary, name: str) -> Any:
    """What the JSON of an entry holds, for programs; None where there is no such entry."""
    return json.loads(summary.get(name, "null"))


def is_first(summary: Summary) -> bool:
    """Whether it is that of a table's first snapshot: nothing has been read."""
    return summary.get(TO) == "{}"


def topic_of(summary: Summary) -> TopicKey:
    return TopicKey(summary[CLUSTER_ID], summary[TOPIC_ID])


def has_ledger(summary: Summary) -> bool:
    return LEDGER in summary


def remade_of(summary: Summary) -> dict[int, tuple[int, int]]:
    """Partition -> offsets [from, to) whose rows a backfill made again."""
    return {int(p): (a, b) for p, (a, b) in json.loads(summary.get(REMADE, "{}")).items()}


def withdrawn_of(summary: Summary) -> list[str]:
    """The rounds of dead letters that the commit took back."""
    found: list[str] = json.loads(summary.get(WITHDRAWN, "[]"))
    return found


def has_position(summary: Mapping[str, str]) -> bool:
    """True where a snapshot summary was written by a calve data commit."""
    return TO in summary


def decode(summary: Mapping[str, str], snapshot: int | None = None) -> Position:
    """The position that a snapshot summary holds.

    Raises:
        Suspended: a release newer than this one wrote it (`format_too_new`).
    """
    written = int(summary.get(FORMAT_OF, "0"))
    if written > FORMAT:
        raise Suspended(
            "format_too_new",
            f"the table's position has format {written}, this release reads formats up to {FORMAT}",
            fix="run the release that wrote the table, or a newer one",
        )
    letters = summary.get(DEAD_LETTERS)
    return Position(
        offsets=decode_offsets(summary[TO]),
        round=summary[ROUND],
        writer=summary[WRITER],
        topic=summary[TOPIC],
        snapshot=snapshot,
        dead_letters=DeadLetterRound(**json.loads(letters)) if letters else None,
        redrives=int(summary.get(REDRIVES, 0)),
        mode=summary.get(MODE),
    )


def ledger_of(summary: Mapping[str, str]) -> Ledger:
    """The fate of every offset of the round that a commit made; of a commit that made none, nothing."""
    return Ledger.from_json(summary.get(LEDGER, "{}"))


def metrics_of(summary: Mapping[str, str]) -> dict[str, Any]:
    """The figures of the round that a commit made."""
    found = json.loads(summary.get(METRICS, "{}"))
    return found if isinstance(found, dict) else {}


def restated(summary: Mapping[str, str], metrics: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The entries by which a commit that moves nothing says again what `summary` says: where the table stands, and since which
    round. It is no round, and has no ledger.
    """
    said = {key: summary[key] for key in STANDING if key in summary}
    return said | ({METRICS: json.dumps(metrics, sort_keys=True)} if metrics else {})


def root(*, writer: str, topic: str, round_id: str) -> dict[str, str]:
    """The summary of a table's first, empty snapshot: nothing has been read, and that is known for certain."""
    return {
        FORMAT_OF: str(WITHOUT_REDRIVES),
        ROUND: round_id,
        WRITER: writer,
        TOPIC: topic,
        TO: encode_offsets({}),
    }


def published_letters(main: Position, round_id: str) -> dict[str, str]:
    """The summary of a commit on the dead-letter table's main: which round it holds, and where the table stood."""
    return root(writer=main.writer, topic=main.topic, round_id=round_id) | {TO: encode_offsets(main.offsets)}


def encode(
    *,
    position: Position,
    topic: TopicKey,
    start: Mapping[TopicKey, Offsets],
    ledger: Ledger,
    metrics: Mapping[str, Any],
) -> dict[str, str]:
    """The summary entries of a data commit; `decode` reads them back."""
    summary = {
        FORMAT_OF: str(_format(position)),
        ROUND: position.round,
        WRITER: position.writer,
        CLUSTER_ID: topic.cluster_id,
        TOPIC: position.topic,
        TOPIC_ID: topic.topic_id,
        FROM: encode_offsets(start),
        TO: encode_offsets(position.offsets),
        LEDGER: ledger.to_json(),
        METRICS: json.dumps(metrics, sort_keys=True),
    }
    if position.dead_letters:
        summary[DEAD_LETTERS] = _named(position.dead_letters)
    if position.redrives:
        summary[REDRIVES] = str(position.redrives)
    if position.mode:
        summary[MODE] = position.mode
    return summary


def _format(position: Position) -> int:
    """The lowest that says all that the position does."""
    if position.mode:
        known = json.loads(position.mode)["mode"] in ("append", "upsert", "deduplicate")
        return FIRST_MODES if known else FORMAT
    return WITHOUT_MODE if position.redrives else WITHOUT_REDRIVES


def _named(letters: DeadLetterRound) -> str:
    named = asdict(letters)
    if not letters.redriven:
        del named["redriven"]
    return json.dumps(named)
