"""Every name that calve stores in a table: summary entries and properties. The only reader and writer of summaries.

The table is the checkpoint (ADR 1). Names never change, because tables of earlier releases have them. docs/events.md says what
each entry of a summary holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from calve.errors import Suspended
from calve.table.position import (
    WIDE,
    DeadLetterRound,
    Ledger,
    Offsets,
    Position,
    TopicKey,
    decode_offsets,
    encode_offsets,
)

PREFIX = "calve."
"""The beginning of every name here."""
FORMAT = 7
WITHOUT_MOVES = 6
"""A release that does not know moved tables would read their former cluster again."""
WITHOUT_WIDE = 5
"""A release that does not know compressed offsets cannot read the position of a topic with very many partitions."""
WITHOUT_OVERTAKEN = 4
"""A release that refuses redrives of newest rows and totals cannot read their ledgers."""
FIRST_MODES = 3
"""A release that knows only these modes must not write a table of another mode: it would add the records' columns."""
WITHOUT_MODE = 2
"""A release without modes must not write a table that has one: it would append instead of replacing rows."""
WITHOUT_REDRIVES = 1
"""A release without redrives must not write a table that had one: it would forget which dead letters were redriven."""

FORMAT_OF, ROUND, WRITER = "calve.format", "calve.round", "calve.writer"
CLUSTER_ID, TOPIC, TOPIC_ID = "calve.cluster_id", "calve.topic", "calve.topic_id"
FROM, TO, LEDGER, METRICS = "calve.from", "calve.to", "calve.ledger", "calve.metrics"
DEAD_LETTERS, REDRIVES, MODE = "calve.dead_letters", "calve.redrives", "calve.mode"
MAINTENANCE = "calve.maintenance"
"""The kind of a maintenance commit. It is not a round and has no read offsets."""
WORK = "calve.work"
"""The id of a piece of maintenance work, which identifies its commit."""
BASE = "calve.base"
"""For dead letters that wait on a branch: the round of main."""
WITHDRAWN = "calve.withdrawn"
"""JSON: rounds of dead letters that a commit withdrew."""
REMADE = "calve.remade"
"""JSON: offsets of each partition whose rows a backfill made again."""
MOVED = "calve.moved"
"""JSON: the incarnations in `TO` that the table has left for a copy on another cluster."""
CARRIED = (FORMAT_OF, ROUND, WRITER, CLUSTER_ID, TOPIC, TOPIC_ID, TO, DEAD_LETTERS, REDRIVES, MODE, MOVED)
"""Entries that a commit without moved offsets carries forward."""
DIGEST = "calve.digest"
"""JSON: the digests of the rows that a commit added (`calve.table.digests`)."""
ANNOUNCED = "announced"
"""In `METRICS`: the sequence number up to which the table's snapshots have been announced (`calve.outputs.announcement`)."""
COUNTS = "counts"
"""In `METRICS`: a `column`, appended rows by its `values`, and the number of `other` rows."""

# Operator requests: a table property while they wait, and an entry of the commit that answers them.
REDRIVE, FORGET, BACKFILL, TRAVEL = "calve.redrive", "calve.forget", "calve.backfill", "calve.travel"
RELEASE, MOVE, ADOPT = "calve.release", "calve.move", "calve.adopt"

# Properties of a table.
INITIALISED, STATE, EARLIER = "calve.initialised", "calve.state", "calve.earlier"
TOPIC_KEY = "calve.topic-key"
"""The incarnation of the topic that the table was created for, in the text form of `TopicKey`."""
ADOPTED = "calve.adopted"
"""The number of rows that another writer left in the table. They have no offset that calve has read."""
COMPLETE_UNTIL, COMPLETE_ROUND = "calve.complete-until", "calve.complete-round"
REDRIVE_RESULT, PAUSED, HISTORY = "calve.redrive-result", "calve.paused", "calve.history."
FORGET_FOUND, FORGOTTEN, FORGET_LEFT = "calve.forget-found", "calve.forgotten", "calve.forget-left"
TURN, HOLD, RETAINED = "calve.turn", "calve.hold", "calve.retained"
REQUESTS = frozenset({REDRIVE, FORGET, FORGET_LEFT, TRAVEL, BACKFILL, TURN, RELEASE, MOVE, ADOPT})
"""Properties for which a loop ends its wait, and for which no snapshot expires."""
DIGESTS = "calve.digests"
"""The newest file of the digests whose snapshots have expired."""
FIELDS, TOTALS, EMITTED, SETTINGS = "calve.fields", "calve.totals", "calve.emitted", "calve.settings"
RENAMED = "calve.renamed"
"""The newest sequence number before columns were renamed: data files up to it have earlier names."""
LEARNT = "calve.learnt"
"""The JSON Schema that the records of a table have made so far (`calve.schema.inference`)."""
ORIGINS = "calve.origins"
"""The fields that the table's columns come from (`calve.outputs.origins`), for lineage."""
POSITION_TAG = "calve_position"
"""The tag that keeps the snapshot of the position when others expire snapshots."""
NOTED_TAG = "calve_noted"
"""The tag that a note in the properties of a table moves, where a REST catalog has the table."""
TAGS = (POSITION_TAG, NOTED_TAG)

Summary = Mapping[str, str]


PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "3",
    "write.metadata.compression-codec": "gzip",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest.min-count-to-merge": "20",
    "commit.retry.num-retries": "10",
}
"""Properties that keep metadata small.

A reader that polls, or a catalog that syncs every minute, still finds the 100 metadata files before the newest.
"""


def settings(file_bytes: int) -> dict[str, str]:
    """The properties of a new table. An older table gets them once, and again if calve.yaml changes."""
    return PROPERTIES | {"write.target-file-size-bytes": str(file_bytes), SETTINGS: f"1/{file_bytes}"}


def round_of(summary: Summary) -> str | None:
    """The round that wrote it, or whose position it repeats; None for a commit of others."""
    return summary.get(ROUND)


def is_round(summary: Summary) -> bool:
    """Whether the commit read offsets or answered a request, not only repeated a position."""
    return FROM in summary


def starts_of(summary: Summary) -> Mapping[TopicKey, Offsets]:
    """The start offsets of the round; empty for a commit that is not a round."""
    return _below(decode_offsets(summary.get(FROM, "{}")), ends_of(summary))


def ends_of(summary: Summary) -> dict[TopicKey, Offsets]:
    """The committed offsets; empty without a position."""
    return decode_offsets(summary.get(TO, "{}"))


def mode_of(summary: Summary) -> str:
    """The name of the table's mode at the commit."""
    return kind_of(summary.get(MODE))


def kind_of(mode: str | None) -> str:
    """The name of a mode that a position notes."""
    return "append" if mode is None else str(json.loads(mode)["mode"])


def is_first(summary: Summary) -> bool:
    """Whether it belongs to a table's first snapshot: nothing has been read."""
    return summary.get(TO) == "{}"


def topic_of(summary: Summary) -> TopicKey:
    return TopicKey(summary[CLUSTER_ID], summary[TOPIC_ID])


def has_ledger(summary: Summary) -> bool:
    return LEDGER in summary


def remade_of(summary: Summary) -> dict[int, tuple[int, int]]:
    """Partition -> offsets [from, to) whose rows a backfill made again."""
    return {int(p): (a, b) for p, (a, b) in json.loads(summary.get(REMADE, "{}")).items()}


def withdrawn_of(summary: Summary) -> list[str]:
    found: list[str] = json.loads(summary.get(WITHDRAWN, "[]"))
    return found


def has_position(summary: Mapping[str, str]) -> bool:
    """True if a calve data commit wrote the snapshot summary."""
    return TO in summary


def decode(summary: Mapping[str, str], snapshot: int | None = None) -> Position:
    """The position in a snapshot summary. Raises Suspended: `format_too_new`: a newer release wrote it."""
    written = int(summary.get(FORMAT_OF, "0"))
    if written > FORMAT:
        raise Suspended(
            "format_too_new",
            f"the table's position has format {written}, this release reads formats up to {FORMAT}",
            fix="run the release that wrote the table, or a newer one",
        )
    dead_letters = summary.get(DEAD_LETTERS)
    return Position(
        offsets=decode_offsets(summary[TO]),
        round=summary[ROUND],
        writer=summary[WRITER],
        topic=summary[TOPIC],
        snapshot=snapshot,
        dead_letters=DeadLetterRound(**json.loads(dead_letters)) if dead_letters else None,
        redrives=int(summary.get(REDRIVES, 0)),
        mode=summary.get(MODE),
        moved=tuple(map(TopicKey.parse, json.loads(summary.get(MOVED, "[]")))),
    )


def ledger_of(summary: Mapping[str, str]) -> Ledger:
    """The ledger of a commit's round; empty for a commit that is not a round."""
    return Ledger.from_json(summary.get(LEDGER, "{}"))


def metrics_of(summary: Mapping[str, str]) -> dict[str, Any]:
    found = json.loads(summary.get(METRICS, "{}"))
    return found if isinstance(found, dict) else {}


def carried_position(summary: Mapping[str, str], metrics: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The entries of a commit that moves no offset: it repeats the position and round of `summary`, and has no ledger."""
    said = {key: summary[key] for key in CARRIED if key in summary}
    return said | ({METRICS: json.dumps(metrics, sort_keys=True)} if metrics else {})


def root(*, writer: str, topic: str, round_id: str) -> dict[str, str]:
    """The summary of a table's first, empty snapshot: it is certain that nothing has been read."""
    return {
        FORMAT_OF: str(WITHOUT_REDRIVES),
        ROUND: round_id,
        WRITER: writer,
        TOPIC: topic,
        TO: encode_offsets({}),
    }


def published_dead_letters(main: Position, round_id: str) -> dict[str, str]:
    """The summary of a commit on the dead-letter table's main: its round, and the table's position."""
    said = root(writer=main.writer, topic=main.topic, round_id=round_id)
    return said | {
        FORMAT_OF: str(_format(replace(main, mode=None, redrives=0))),
        TO: encode_offsets(main.offsets),
    }


def encode(
    *,
    position: Position,
    topic: TopicKey,
    start: Mapping[TopicKey, Offsets],
    ledger: Ledger,
    metrics: Mapping[str, Any],
) -> dict[str, str]:
    """The summary entries of a data commit; `decode` reads them."""
    summary = {
        FORMAT_OF: str(_format(position)),
        ROUND: position.round,
        WRITER: position.writer,
        CLUSTER_ID: topic.cluster_id,
        TOPIC: position.topic,
        TOPIC_ID: topic.topic_id,
        FROM: encode_offsets(_below(start, position.offsets)),
        TO: encode_offsets(position.offsets),
        LEDGER: ledger.to_json(),
        METRICS: json.dumps(metrics, sort_keys=True),
    }
    if position.dead_letters:
        named = asdict(position.dead_letters)
        if not position.dead_letters.redriven:
            del named["redriven"]
        summary[DEAD_LETTERS] = json.dumps(named)
    if position.redrives:
        summary[REDRIVES] = str(position.redrives)
    if position.mode:
        summary[MODE] = position.mode
    if position.moved:
        summary[MOVED] = json.dumps([*map(str, position.moved)])
    return summary


def _below(
    starts: Mapping[TopicKey, Offsets], ends: Mapping[TopicKey, Offsets]
) -> Mapping[TopicKey, Offsets]:
    """Of topics with `WIDE` partitions or more, how far each start is below its end: small numbers. Its own inverse."""
    return {
        topic: {p: ends.get(topic, {}).get(p, 0) - offset for p, offset in parts.items()}
        if len(parts) >= WIDE
        else parts
        for topic, parts in starts.items()
    }


def _format(position: Position) -> int:
    """The lowest format that can express the position."""
    if position.moved:
        return FORMAT
    if any(len(parts) >= WIDE for parts in position.offsets.values()):
        return WITHOUT_MOVES
    if position.mode:
        kind = kind_of(position.mode)
        if position.redrives and kind not in ("append", "deduplicate"):
            return WITHOUT_WIDE
        return FIRST_MODES if kind in ("append", "upsert", "deduplicate") else WITHOUT_OVERTAKEN
    return WITHOUT_MODE if position.redrives else WITHOUT_REDRIVES
