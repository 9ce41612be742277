"""The position of a table and the ledger of a round: what every data commit writes into its snapshot summary.

The table is the checkpoint (ADR 1). Keys under `calve.`:

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
from dataclasses import asdict, dataclass, field
from typing import Any

from calve.errors import Suspended

FORMAT = 4
FIRST_MODES = 3
"""A release that knows these modes alone must not write a table of another: it would give it the columns of the records."""
WITHOUT_MODE = 2
"""A release that knows no modes must not write a table that has one: it would append what replaces rows."""
WITHOUT_REDRIVES = 1
"""A release that knows no redrives must not write a table that has had one: it would forget which letters came back."""
MODE = "calve.mode"
INITIALISED = "calve.initialised"
TOPIC = "calve.topic"
TOPIC_KEY = "calve.topic-key"
"""The property that names the incarnation of the topic that a table was made for, as `TopicKey` writes itself."""
STATE = "calve.state"
COMPLETE_UNTIL = "calve.complete-until"
COMPLETE_ROUND = "calve.complete-round"
EARLIER = "calve.earlier"
"""The property that says in short what expired snapshots said (`calve.requests.expired_history`)."""
POSITION_TAG = "calve_position"
ANNOUNCED = "announced"
"""In `calve.metrics`: the sequence number up to which the table's snapshots had been announced (`calve.outputs.announcement`)."""
COUNTS = "counts"
"""In `calve.metrics`: a `column`, appended rows by its `values`, and how many `other` rows there are."""
MAINTENANCE = "calve.maintenance"
"""The summary entry by which a commit of maintenance names what it did; it is no round, and says no offsets that it read."""
STANDING = (
    "calve.format",
    "calve.round",
    "calve.writer",
    "calve.cluster_id",
    "calve.topic",
    "calve.topic_id",
    "calve.to",
    "calve.dead_letters",
    "calve.redrives",
    MODE,
)
NO_LETTERS = ""
"""Stands for the round of the newest dead letters where there are none."""

Offsets = dict[int, int]
"""Partition -> next offset to read."""


@dataclass(frozen=True, slots=True)
class TopicKey:
    """One incarnation of a topic: a re-created topic has another id (KIP-516), a re-created cluster another cluster id."""

    cluster_id: str
    topic_id: str

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.topic_id}"

    @classmethod
    def parse(cls, text: str) -> TopicKey:
        cluster_id, _, topic_id = text.partition("/")
        return cls(cluster_id, topic_id)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The fate of every offset of a round. `span = consumed + gaps + lost`; each consumed record has one fate.

    `rows_appended` counts rows of the table, which need not equal `applied` records. `rejected` is by reason.
    `lost` holds offset ranges that were gone before they could be read: partition -> [from, to).
    A redrive reads no offsets: of the dead letters `selected`, each is `redriven`, `present` (the table had its record already)
    or `refused`, by reason.
    `skipped` is by reason, too: rejects that are in no table. `skipped_schemas` tells those that a schema was the reason of by
    its id, as far as they are not too many: what is unknown today may be registered tomorrow. `filtered` records belong to other
    tables of the same topic, or were left out by a step, which are `filtered_by_steps`; `filtered_schemas` tells the others by
    the id of their schema, as far as those are not too many. `rows_filtered` are rows that a step left out behind one that
    makes several of a record.
    """

    span: int = 0
    consumed: int = 0
    gaps: int = 0
    applied: int = 0
    deduplicated: int = 0
    filtered: int = 0
    filtered_by_steps: int = 0
    dead_lettered: int = 0
    rows_appended: int = 0
    rows_deleted: int = 0
    rows_filtered: int = 0
    lost: int = 0
    selected: int = 0
    redriven: int = 0
    present: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    skipped_schemas: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    filtered_schemas: dict[str, int] = field(default_factory=dict)

    def imbalance(self) -> str | None:
        """The first law that the figures break, or None where the ledger balances."""
        if self.span != self.consumed + self.gaps + self.lost:
            return f"span {self.span} is not consumed {self.consumed} + gaps {self.gaps} + lost {self.lost}"
        skipped = sum(self.skipped.values())
        fates = self.applied + self.deduplicated + self.filtered + self.dead_lettered + skipped
        if self.consumed != fates:
            return (
                f"consumed {self.consumed} is not applied {self.applied} + deduplicated {self.deduplicated}"
                f" + filtered {self.filtered} + dead-lettered {self.dead_lettered} + skipped {skipped}"
            )
        if self.dead_lettered != sum(self.rejected.values()):
            return f"dead-lettered {self.dead_lettered} is not the sum of its reasons {sum(self.rejected.values())}"
        refused = sum(self.refused.values())
        if self.selected != self.redriven + self.present + refused:
            return f"selected {self.selected} is not redriven {self.redriven} + present {self.present} + refused {refused}"
        named = self.filtered_by_steps + sum(self.filtered_schemas.values())
        if self.filtered < named:
            return f"filtered {self.filtered} is less than by steps and by schema {named}"
        return None

    def plus(self, other: Ledger) -> Ledger:
        """Both as one."""
        sums: dict[str, Any] = {}
        for name in self.__slots__:
            these, those = getattr(self, name), getattr(other, name)
            if isinstance(these, dict):
                sums[name] = {key: these.get(key, 0) + those.get(key, 0) for key in sorted({*these, *those})}
            else:
                sums[name] = these + those
        return Ledger(**sums)

    def to_json(self) -> str:
        figures = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({name: value for name, value in figures.items() if value}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class DeadLetterRound:
    """The newest round of a table that changed its dead letters; `snapshot` is the commit on the dead-letter table's branch.

    `previous` is the one before it: what the dead-letter table must end with when this one is published.
    `redriven`: it is a redrive, and the branch holds the letters that came back, each with its mark, in the place of those
    without.
    """

    round: str
    snapshot: int
    count: int
    previous: str = NO_LETTERS
    redriven: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Where a table stands, as one snapshot of it says."""

    offsets: dict[TopicKey, Offsets]
    round: str
    writer: str
    topic: str
    snapshot: int | None = None
    dead_letters: DeadLetterRound | None = None
    redrives: int = 0
    mode: str | None = None

    def of(self, topic: TopicKey) -> Offsets | None:
        """Next offsets of a topic's incarnation; None where the table has never read it."""
        return self.offsets.get(topic)


def encode_offsets(offsets: Mapping[TopicKey, Offsets]) -> str:
    return json.dumps(
        {
            str(topic): {str(p): o for p, o in sorted(parts.items())}
            for topic, parts in sorted(offsets.items(), key=str)
        }
    )


def decode_offsets(text: str) -> dict[TopicKey, Offsets]:
    return {
        TopicKey.parse(key): {int(p): int(o) for p, o in parts.items()}
        for key, parts in json.loads(text).items()
    }


def has_position(summary: Mapping[str, str]) -> bool:
    """True where a snapshot summary was written by a calve data commit."""
    return "calve.to" in summary


def decode(summary: Mapping[str, str], snapshot: int | None = None) -> Position:
    """The position that a snapshot summary holds.

    Raises:
        Suspended: a release newer than this one wrote it (`format_too_new`).
    """
    written = int(summary.get("calve.format", "0"))
    if written > FORMAT:
        raise Suspended(
            "format_too_new",
            f"the table's position has format {written}, this release reads formats up to {FORMAT}",
            fix="run the release that wrote the table, or a newer one",
        )
    letters = summary.get("calve.dead_letters")
    return Position(
        offsets=decode_offsets(summary["calve.to"]),
        round=summary["calve.round"],
        writer=summary["calve.writer"],
        topic=summary["calve.topic"],
        snapshot=snapshot,
        dead_letters=DeadLetterRound(**json.loads(letters)) if letters else None,
        redrives=int(summary.get("calve.redrives", 0)),
        mode=summary.get(MODE),
    )


def ledger_of(summary: Mapping[str, str]) -> Ledger:
    """The fate of every offset of the round that a commit made; of a commit that made none, nothing."""
    return Ledger.from_json(summary.get("calve.ledger", "{}"))


def metrics_of(summary: Mapping[str, str]) -> dict[str, Any]:
    """The figures of the round that a commit made."""
    found = json.loads(summary.get("calve.metrics", "{}"))
    return found if isinstance(found, dict) else {}


def restated(summary: Mapping[str, str], metrics: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The entries by which a commit that moves nothing says again what `summary` says: where the table stands, and since which
    round. It is no round, and has no ledger.
    """
    said = {key: summary[key] for key in STANDING if key in summary}
    return said | ({"calve.metrics": json.dumps(metrics, sort_keys=True)} if metrics else {})


def root(*, writer: str, topic: str, round_id: str) -> dict[str, str]:
    """The summary of a table's first, empty snapshot: nothing has been read, and that is known for certain."""
    return {
        "calve.format": str(WITHOUT_REDRIVES),
        "calve.round": round_id,
        "calve.writer": writer,
        "calve.topic": topic,
        "calve.to": encode_offsets({}),
    }


def published_letters(main: Position, round_id: str) -> dict[str, str]:
    """The summary of a commit on the dead-letter table's main: which round it holds, and where the table stood."""
    return root(writer=main.writer, topic=main.topic, round_id=round_id) | {
        "calve.to": encode_offsets(main.offsets)
    }


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
        "calve.format": str(_format(position)),
        "calve.round": position.round,
        "calve.writer": position.writer,
        "calve.cluster_id": topic.cluster_id,
        "calve.topic": position.topic,
        "calve.topic_id": topic.topic_id,
        "calve.from": encode_offsets(start),
        "calve.to": encode_offsets(position.offsets),
        "calve.ledger": ledger.to_json(),
        "calve.metrics": json.dumps(metrics, sort_keys=True),
    }
    if position.dead_letters:
        summary["calve.dead_letters"] = _named(position.dead_letters)
    if position.redrives:
        summary["calve.redrives"] = str(position.redrives)
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
