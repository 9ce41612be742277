"""The decisions of an ingest round, as functions of the state of table and topic.

Everything that decides whether offsets are read, published, refused or repeated is here, without Spark and Kafka.
So the model in `tests/unit/calve/table/test_protocol_model.py` runs the same code as production.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from calve.errors import CalveError, Suspended
from calve.table.position import NO_DEAD_LETTERS, DeadLetterRound, Ledger, Offsets, Position, TopicKey
from calve.table.summary import (
    COMPLETE_ROUND,
    COMPLETE_UNTIL,
    EARLIER,
    decode,
    has_ledger,
    has_position,
    ledger_of,
    metrics_of,
    round_of,
)


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot for the protocol. `committed_at`: epoch seconds by its writer's clock. It and `sequence` are 0 if not read."""

    id: int
    parent: int | None
    summary: Mapping[str, str]
    committed_at: float = 0.0
    sequence: int = 0
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class TopicState:
    """The state of a topic. `end` is the last stable offset (read_committed), `log_start` the first offset still held.

    `complete_until`: every record that arrived before this time (epoch seconds) is below `end`.
    None if a transaction is open: its records will become readable at offsets they already have.
    """

    key: TopicKey
    name: str
    log_start: Offsets
    end: Offsets
    compacted: bool = False
    transactional: bool = False
    complete_until: float | None = None

    def require(self, offsets: Offsets) -> None:
        """Raises CalveError: the topic no longer has one of these next offsets."""
        for partition, offset in sorted(offsets.items()):
            first, end = self.log_start.get(partition, 0), self.end.get(partition, -1)
            if not first <= offset <= end:
                raise CalveError(
                    f"partition {partition} has no offset {offset} any more: it has [{first}, {end})"
                )


def position_commit(ancestors: Iterable[Commit]) -> Commit | None:
    """The nearest ancestor with a position; `ancestors` runs from the head of main towards the root.

    Never the newest snapshot of the table: that list also holds staged branches and remains of a rollback.
    """
    return next((each for each in ancestors if has_position(each.summary)), None)


def nearest_position(ancestors: Iterable[Commit]) -> Position | None:
    commit = position_commit(ancestors)
    return None if commit is None else decode(commit.summary, commit.id)


def bytes_per_record(ancestors: Iterable[Commit]) -> float | None:
    """The average size in Kafka of the records of the newest round that read any; None if no ancestor has it."""
    for each in ancestors:
        records = ledger_of(each.summary).consumed
        if records and (size := metrics_of(each.summary).get("bytes_in")):
            return float(size / records)
    return None


def complete_until(ancestors: Iterable[Commit], properties: Mapping[str, str]) -> float | None:
    """Until when the table has every record that arrived in the topic, in epoch seconds; None if unknown.

    The newest claim among main's ancestors holds, because later rounds only add.
    An idle table's note in its properties survives a rollback of main, so it holds only for its round.
    Claims of expired snapshots hold as long as main descends from them.
    """
    noted = None
    newest = True
    expired = json.loads(properties.get(EARLIER, "{}"))
    claimed_before = None
    for commit in ancestors:
        if commit.id == expired.get("before"):
            claimed_before = expired.get("complete_until")
        if not has_position(commit.summary):
            continue
        if newest and round_of(commit.summary) == properties.get(COMPLETE_ROUND):
            noted = float(properties[COMPLETE_UNTIL])
        newest = False
        claimed = metrics_of(commit.summary).get("complete_until")
        if claimed is not None:
            return float(claimed) if noted is None else max(float(claimed), noted)
    return claimed_before if noted is None else noted


def ancestry_is_cut(ancestors: Sequence[Commit]) -> bool:
    """True if expiry removed older ancestors: the oldest remaining one still names a parent."""
    return bool(ancestors) and ancestors[-1].parent is not None


def locate(
    ancestors: Sequence[Commit], *, tagged: Commit | None, greatest_offsets: Mapping[TopicKey, Offsets] | None
) -> Position:
    """The position of an initialised table.

    The tag counts only if expiry has cut the ancestry, and only if the table has neither more nor less than the tag says.
    More: a row or dead letter at or beyond its offsets. `greatest_offsets`: the greatest held offsets, by topic and
    partition; None: not read, the tag is not used.
    Less: a rollback to a foreign snapshot older than the tag.

    Raises Suspended: `position_lost`: the position cannot be proven; starting over would double the table.
    """
    position = nearest_position(ancestors)
    if position is not None:
        return position
    if ancestry_is_cut(ancestors) and tagged is not None and greatest_offsets is not None:
        position = decode(tagged.summary, tagged.id)
        below = all(
            offset < position.offsets.get(topic, {}).get(partition, 0)
            for topic, offsets in greatest_offsets.items()
            for partition, offset in offsets.items()
        )
        held = _rows(
            ancestors[0].summary
        )  # compaction keeps Iceberg's totals, a rollback or a replaced table does not
        if below and held is not None and held == _rows(tagged.summary):
            return position
    raise Suspended(
        "position_lost",
        "no snapshot in main's history says which offsets the table holds: it was replaced, or its history was expired",
        fix="roll the table back to a snapshot with calve.* in its summary, or drop the table to read the topic again",
    )


def _rows(summary: Mapping[str, str]) -> int | None:
    """Rows of a snapshot without deleted ones; None if unknown."""
    records = summary.get("total-records")
    return None if records is None else int(records) - int(summary.get("total-position-deletes", 0))


@dataclass(frozen=True, slots=True)
class Begin:
    """Where the next read starts; `lost` are ranges [from, to) that expired before they were read."""

    offsets: Offsets
    lost: dict[int, tuple[int, int]] = field(default_factory=dict)
    reason: str | None = None

    @property
    def since(self) -> Offsets:
        """Where the ledger of the round starts: at the table's position, before the lost offsets."""
        return {p: self.lost[p][0] if p in self.lost else o for p, o in self.offsets.items()}


def begin(
    position: Position,
    topic: TopicState,
    *,
    first: Offsets,
    on_data_loss: Literal["suspend", "continue"],
    made_for: TopicKey | None = None,
) -> Begin:
    """The offsets that a round reads from, by partition.

    `first`: the start of a topic that the table has never read; a partition added later starts at 0.
    `made_for`: the topic at the time the table was created, if the table has it.

    Raises Suspended: `topic_recreated`, `cluster_changed`, `partitions_missing`, `log_truncated`, `offsets_expired`.
    """
    if topic.key in position.moved:
        raise Suspended(
            "cluster_changed",
            f"the table was moved to {position.newest}, a copy of topic {topic.name} on this cluster ({topic.key})",
            fix="let kafka.bootstrap_servers name the cluster of the move, or roll the table back to a snapshot from before"
            " it: calve rollback",
        )
    known = position.of(topic.key)
    reason = None
    expected = tuple(position.offsets) or ((made_for,) if made_for else ())
    if known is None and expected and topic.key not in expected:
        reason, text, fix = _other_incarnation(expected, topic)
        if on_data_loss == "suspend":
            raise Suspended(reason, text, fix=fix)
        known = {}
    elif known is None:
        return Begin({p: max(first.get(p, 0), start) for p, start in topic.log_start.items()})
    if missing := sorted(known.keys() - topic.end.keys()):
        raise Suspended("partitions_missing", f"topic {topic.name} has lost its partitions {missing}")
    offsets = {p: known.get(p, 0) for p in topic.log_start}
    beyond = {p: o for p, o in offsets.items() if o > topic.end[p]}
    if beyond:
        raise Suspended(
            "log_truncated",
            f"topic {topic.name} ends before offsets that the table holds already: "
            + ", ".join(
                f"partition {p} ends at {topic.end[p]}, next offset is {o}" for p, o in sorted(beyond.items())
            ),
            fix="the log was truncated (unclean leader election?): restore it, or roll the table back below its end",
        )
    lost = {p: (o, topic.log_start[p]) for p, o in offsets.items() if o < topic.log_start[p]}
    if lost and on_data_loss == "suspend":
        ranges = ", ".join(f"partition {p} [{a}, {b})" for p, (a, b) in sorted(lost.items()))
        raise Suspended(
            "offsets_expired",
            f"topic {topic.name} no longer holds offsets that were never read: {ranges}",
            fix="set on_data_loss: continue to go on after the lost range and record it in the ledger",
        )
    return Begin({p: max(o, topic.log_start[p]) for p, o in offsets.items()}, lost, reason)


def _other_incarnation(expected: Sequence[TopicKey], topic: TopicState) -> tuple[str, str, str]:
    former = ", ".join(map(str, expected))
    if any(key.cluster_id == topic.key.cluster_id for key in expected):
        return (
            "topic_recreated",
            f"topic {topic.name} was created again: its id is {topic.key}, the table is of {former}",
            "set on_data_loss: continue. The job then adds all records of the new topic to this table. If producers"
            " sent the former records again, name another table: this one would hold them twice",
        )
    return (
        "cluster_changed",
        f"topic {topic.name} is on another cluster: {topic.key}, the table is of {former}",
        "if this topic is a copy of the former one: calve move TABLE --from-cluster FORMER.yaml. If it holds new"
        " records only, set on_data_loss: continue: the job then adds all of them to this table. Else point"
        " kafka.bootstrap_servers back to the former cluster",
    )


def recheck(before: TopicState, after: TopicState, start: Offsets) -> None:
    """Compare a topic before and after it was read: a re-created topic silently returns other records for the same offsets.

    Raises Suspended: `topic_recreated`, `cluster_changed` or `offsets_expired` happened during the read; nothing was published.
    """
    if before.key != after.key:
        code = "topic_recreated" if before.key.cluster_id == after.key.cluster_id else "cluster_changed"
        raise Suspended(
            code, f"topic {after.name} changed from {before.key} to {after.key} while it was read"
        )
    gone = sorted(p for p, o in start.items() if after.log_start.get(p, o) > o)
    if gone:
        raise Suspended(
            "offsets_expired", f"topic {after.name}: retention passed the read in partitions {gone}"
        )


def check_gaps(
    topic: TopicState, *, span: int, records: int, allowed: bool, missing: Callable[[], Offsets]
) -> int:
    """The number of offsets without a record; they occur only in compacted and in transactional topics.

    Both numbers are of one read: a second read of a compacted topic may find fewer records.
    `missing` counts the offsets without a record by partition. It is called only to report an unexplained gap.

    Raises Suspended: `offset_gap`: records are missing without explanation; `offset_surplus`: more records than offsets.
    """
    gaps = span - records
    if gaps < 0:
        raise Suspended("offset_surplus", f"topic {topic.name} gave {records} records for {span} offsets")
    if gaps and not (allowed or topic.compacted or topic.transactional):
        raise Suspended(
            "offset_gap",
            f"topic {topic.name} is neither compacted nor transactional, yet offsets have no record: "
            + ", ".join(f"{n} in partition {p}" for p, n in sorted(missing().items()) if n),
            fix="set gaps: allow for this table if its producers used transactions that the broker has forgotten",
        )
    return gaps


def may_publish(ancestors: Iterable[Commit], base: Position) -> bool:
    """The compare of the compare-and-swap: main must still be at the position from which this round started.

    Foreign commits on top (compaction, property changes) are allowed; another round, or a rollback before `base`, is not.
    """
    current = nearest_position(ancestors)
    return current is not None and current.round == base.round


def only_rewritten(ancestors: Iterable[Commit], since: int) -> bool:
    """True if every commit after the snapshot `since` has rewritten files and changed no row, as compaction does."""
    for each in ancestors:
        if each.id == since:
            return True
        if each.operation != "replace":
            return False
    return False


def contains_round(ancestors: Iterable[Commit], round_id: str) -> bool:
    """True if main's history holds this round. This resolves an ambiguous commit, never a blind retry."""
    return any(round_of(commit.summary) == round_id for commit in ancestors)


def each_round(past: Iterable[Commit]) -> Iterator[Commit]:
    """The first commit of each round in `past`: several may repeat its ledger."""
    seen = set()
    for commit in past:
        name = round_of(commit.summary)
        if has_ledger(commit.summary) and name not in seen:
            seen.add(name)
            yield commit


def check_ledger(ledger: Ledger, *, staged_rows: int) -> None:
    """Refuse a round whose counts contradict each other or the staged files. Raises Suspended: `ledger_imbalance`."""
    problem = ledger.imbalance()
    if problem is None and staged_rows != ledger.rows_appended:
        problem = f"{staged_rows} rows were staged, {ledger.rows_appended} were counted at the source"
    if problem:
        raise Suspended("ledger_imbalance", f"the round does not balance and was not published: {problem}")


def next_position(
    base: Position,
    topic: TopicState,
    to: Offsets,
    *,
    round_id: str,
    writer: str,
    dead_letters: DeadLetterRound | None,
) -> Position:
    """The position after a round. Offsets of other incarnations of the topic stay in it."""
    if dead_letters:
        dead_letters = replace(
            dead_letters, previous=base.dead_letters.round if base.dead_letters else NO_DEAD_LETTERS
        )
    return Position(
        offsets=base.with_offsets(topic.key, to),
        round=round_id,
        writer=writer,
        topic=topic.name,
        dead_letters=dead_letters or base.dead_letters,
        redrives=base.redrives,
        mode=base.mode,
        moved=base.moved,
    )


def bounded(start: Offsets, end: Offsets, *, budget_records: int, partition_records: int) -> Offsets:
    """The exclusive ends of the next round: a fair share of the budget for each partition; small backlogs leave some over."""
    backlog = {p: max(0, end[p] - o) for p, o in start.items()}
    to = dict(start)
    left = budget_records
    for index, partition in enumerate(order := sorted(backlog, key=lambda p: (backlog[p], p))):
        share = -(-left // (len(order) - index))
        taken = min(backlog[partition], share, partition_records)
        to[partition] += taken
        left -= taken
    return to
