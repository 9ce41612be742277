"""Where a copy of a topic goes on: behind the copy of the last record that a table has, found by contents (ADR 73).

MirrorMaker 2, MSK Replicator and Cluster Linking copy a partition's records in order, with key, value and timestamp. After a
restart they may copy some again. So the place is behind the last copy of the record before the table's offset: from there on the
copy has every later record, and no earlier one.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Self

import typer

from calve.config.job import Kafka
from calve.errors import CalveError
from calve.requests.requests import Entry, Move
from calve.table.position import Offsets
from calve.table.protocol import TopicState, nearest_position
from cli import lake
from cli.act.requests import Kind, OpenedTable, YesOption, person, stamp
from cli.config import Common, TableArgument, kafka_in
from cli.kafka import Cluster
from cli.verify.topic import Reader, Records

WINDOW = 1_000
"""So many offsets before the table's are compared at least."""
SHOWN = 5
REPEATED = "the copy repeats records, as a mirror does after a restart"


@dataclass(frozen=True, slots=True)
class Mark:
    """A record by its contents; the same record of a copy has the same `digest`."""

    offset: int
    timestamp_ms: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition goes on. records: how many records in a row prove it; 0: no topic holds a record before it."""

    partition: int
    former: int
    offset: int
    records: int


@dataclass
class Side:
    """One topic on one cluster. stamped: records keep their producers' timestamps."""

    cluster: Cluster
    topic: TopicState
    reader: Reader
    stamped: bool

    @classmethod
    def of(cls, kafka: Kafka, region: str, topic: str) -> Self:
        """Raises CalveError: the cluster has no such topic."""
        cluster = Cluster(kafka, region)
        state = cluster.topics({topic}).get(topic)
        if state is None:
            fix = "wait for the mirror to make it, or name the copy: `topic:` in calve.yaml"
            raise CalveError(f"the cluster {kafka.bootstrap_servers} has no topic {topic}", fix=fix)
        stamped = cluster.setting(topic, "message.timestamp.type") == "CreateTime"
        state = replace(state, compacted=cluster.is_compacted(topic))
        return cls(cluster, state, Reader(state, kafka, region), stamped)

    def begins(self, moments: Mapping[int, int], *, stamped: bool) -> Offsets:
        """Offsets at or before every record that is as old as these timestamps, by partition."""
        asked = {partition: moment for partition, moment in moments.items() if stamped and moment >= 0}
        found = self.cluster.offsets_at(self.topic, asked) if asked else {}
        return {partition: found.get(partition, self.topic.log_start[partition]) for partition in moments}

    def marks(self, spans: Mapping[int, tuple[int, int]], *, stamped: bool) -> dict[int, list[Mark]]:
        """The records of these offsets, in order. stamped: their timestamps count as contents."""
        found: dict[int, list[Mark]] = {partition: [] for partition in spans}
        wanted = {p: (max(first, self.topic.log_start[p]), end) for p, (first, end) in spans.items()}
        for records in self.reader.read(wanted):
            for index, mark in enumerate(_marked(records, stamped=stamped)):
                found[records.partitions[index]].append(mark)
        return found


@dataclass
class Part:
    """A partition whose place is searched.

    before, after: records of the former topic below the table's offset, at least those like the last one, and all from it on.
    anchor: the shortest end of `before` that is nowhere else among them. copied: records of the copy as old as the anchor, or
    younger. place: how many of `copied` are before the place.
    """

    number: int
    held: int
    before: list[Mark] = field(default_factory=list)
    after: list[Mark] = field(default_factory=list)
    anchor: list[Mark] = field(default_factory=list)
    copied: list[Mark] = field(default_factory=list)
    place: int = 0

    @property
    def strangers(self) -> list[Mark]:
        """Records behind the place that the former topic does not have behind the table's offset."""
        known = {each.digest for each in self.after}
        return [each for each in self.copied[self.place :] if each.digest not in known]

    def anchored(self) -> str | None:
        """Choose the anchor; why there is none. Nothing is before the first offset."""
        if self.held == 0:
            return None
        if not self.before:
            return "the former topic does not hold any record that the table has"
        digests = [each.digest for each in (*self.before, *self.after)]
        length = _length(digests, len(self.before) - 1, whole=self.before[0].offset == 0)
        if not length:
            return "its records are all alike, so none of them tells the place"
        self.anchor = self.before[len(self.before) - length :]
        return None

    def placed(self) -> str | None:
        """Find the place; why it is not proved: the records behind it are not all that the table lacks, each once."""
        start = _last(self.anchor, self.copied) if self.anchor else 0
        if start is None:
            return f"the copy does not have the former topic's record at offset {self.anchor[-1].offset}"
        self.place = start + len(self.anchor)
        later = [each.digest for each in self.after]
        found = Counter(each.digest for each in self.copied[self.place :])
        reached = Counter(each.digest for each in self.copied[: self.place]) & Counter(later)
        if reached - found or not found.keys().isdisjoint(each.digest for each in self.before):
            return REPEATED
        if later and later[0] != next(filter({*later}.__contains__, found), later[0]):
            return f"the copy does not have the former topic's record at offset {self.after[0].offset}"
        times = Counter(later)
        if twice := [each.offset for each in self.after if found[each.digest] > times[each.digest]]:
            return f"the copy has records twice that the table lacks, up to offset {twice[-1]} of the former topic"
        return None


@dataclass
class Search:
    """Compares both topics. held: the table's offsets in the former one. problems: of partitions whose place is not proved."""

    former: Side
    copy: Side
    held: Offsets
    problems: dict[int, str] = field(default_factory=dict)

    @property
    def stamped(self) -> bool:
        return self.former.stamped and self.copy.stamped

    def places(self) -> list[Place]:
        """Where each partition goes on. Raises CalveError: a place is not proved; the message names them."""
        found = {p: place for p in self.held if (place := self._unread(p))}
        parts = [Part(p, held) for p, held in self.held.items() if p not in found and p not in self.problems]
        self._read_former(parts)
        parts = self._sound(parts, Part.anchored)
        self._read_copy(parts)
        parts = self._sound(parts, Part.placed)
        earlier = self._earlier(parts)
        parts = self._sound(parts, lambda part: self._repeated(part, earlier.get(part.number, set())))
        if self.problems:
            topic = f"topic {self.copy.topic.name} on cluster {self.copy.topic.key.cluster_id}"
            raise unproved(topic, self.problems, "let the copy catch up, then ask again")
        for each in parts:
            offset = each.copied[each.place - 1].offset + 1 if each.place else 0
            found[each.number] = Place(each.number, each.held, offset, len(each.anchor))
        return [found[p] for p in sorted(found)]

    def _sound(self, parts: list[Part], check: Callable[[Part], str | None]) -> list[Part]:
        """The partitions without a problem."""
        self.problems |= {each.number: problem for each in parts if (problem := check(each))}
        return [each for each in parts if each.number not in self.problems]

    def _unread(self, partition: int) -> Place | None:
        """The place of a partition that needs no search: neither topic holds a record before it."""
        held, former, copy = self.held[partition], self.former.topic, self.copy.topic
        first, end = former.log_start.get(partition, 0), former.end.get(partition, -1)
        if partition not in copy.end:
            self.problems[partition] = "the copy does not have it"
        elif not first <= held <= end:
            self.problems[partition] = f"the former topic has [{first}, {end}), the table goes on at {held}"
        elif first == held and held and copy.log_start[partition] == copy.end[partition]:
            return Place(partition, held, copy.end[partition], 0)
        return None

    def _read_former(self, parts: list[Part]) -> None:
        size, first, end = WINDOW, self.former.topic.log_start, self.former.topic.end
        left = parts
        while left:  # again where compaction or markers of transactions left no record
            found = self._former({each.number: (each.held - size, each.held) for each in left})
            for each in left:
                each.before = found[each.number]
            left = [each for each in left if not each.before and each.held - size > first[each.number]]
            size *= 16
        some = [each for each in parts if each.before]
        ages = {each.number: each.before[-1].timestamp_ms for each in some}
        begins = self.former.begins(ages, stamped=self.stamped)
        older = self._former({each.number: (begins[each.number], each.before[0].offset) for each in some})
        after = self._former({each.number: (each.held, end[each.number]) for each in parts})
        for each in parts:
            each.before, each.after = older.get(each.number, []) + each.before, after[each.number]

    def _former(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, list[Mark]]:
        return self.former.marks(spans, stamped=self.stamped)

    def _read_copy(self, parts: list[Part]) -> None:
        ages = {each.number: min((mark.timestamp_ms for mark in each.anchor), default=-1) for each in parts}
        begins = self.copy.begins(ages, stamped=self.stamped)
        copied = self.copy.marks({p: (begins[p], self.copy.topic.end[p]) for p in ages}, stamped=self.stamped)
        for each in parts:
            each.copied = copied[each.number]

    def _earlier(self, parts: list[Part]) -> dict[int, set[bytes]]:
        """The records of both topics before the place that are as old as strangers, or younger."""
        ends = {each.number: (each.held, each.copied[each.place].offset) for each in parts if each.strangers}
        ages = {each.number: min(m.timestamp_ms for m in each.strangers) for each in parts if each.strangers}
        found: dict[int, set[bytes]] = {partition: set() for partition in ages}
        for index, side in enumerate((self.former, self.copy)):
            begins = side.begins(ages, stamped=self.stamped)
            marks = side.marks({p: (begins[p], ends[p][index]) for p in ages}, stamped=self.stamped)
            for partition, each in marks.items():
                found[partition].update(mark.digest for mark in each)
        return found

    def _repeated(self, part: Part, earlier: set[bytes]) -> str | None:
        if part.strangers and (self.former.topic.compacted or self.copy.topic.compacted):
            return "it is compacted, and the copy has records that the former topic does not have"
        return None if earlier.isdisjoint(each.digest for each in part.strangers) else REPEATED


def unproved(topic: str, problems: Mapping[int, str], fix: str) -> CalveError:
    """problems: by partition."""
    named = [f"partition {p}: {why}" for p, why in sorted(problems.items())]
    more = f"; and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    text = f"{topic} does not prove where the table goes on: {'; '.join(named[:SHOWN])}{more}"
    return CalveError(text, fix=f"{fix}; nothing was changed")


def _marked(records: Records, *, stamped: bool) -> Iterator[Mark]:
    for index, offset in enumerate(records.offsets):
        at_ms = records.timestamps_ms[index]
        digest = blake2b(str(at_ms).encode() if stamped else b"", digest_size=16)
        for part in (records.keys[index], records.values[index]):
            digest.update(b"-" if part is None else b"%d:" % len(part) + part)
        yield Mark(offset, at_ms, digest.digest())


def _length(digests: Sequence[bytes], last: int, *, whole: bool) -> int:
    """How many digests up to `last` are in a row nowhere else; 0: perhaps none. whole: nothing is before the first digest."""
    longest = 0
    for at in (at for at, each in enumerate(digests) if each == digests[last] and at != last):
        most = min(at, last) + 1
        alike = next((n for n in range(1, most) if digests[at - n] != digests[last - n]), most)
        if alike > at and not whole:
            return 0
        longest = max(longest, alike)
    return longest + 1 if longest <= last else 0


def _last(anchor: Sequence[Mark], copied: Sequence[Mark]) -> int | None:
    """Where the last row of these records begins in the copy."""
    wanted, first = [each.digest for each in anchor], anchor[0].digest
    return next(
        (
            at
            for at in range(len(copied) - len(wanted), -1, -1)
            if copied[at].digest == first and _digests(copied[at : at + len(wanted)]) == wanted
        ),
        None,
    )


def _digests(marks: Iterable[Mark]) -> list[bytes]:
    return [each.digest for each in marks]


MOVE = Kind(Move, "move of", Entry.of, "nothing was changed in", fix="correct that, then ask again")
FormerOption = Annotated[
    Path,
    typer.Option(
        "--from-cluster",
        metavar="FILE",
        help="A file with `kafka:` of the former cluster: the former calve.yaml will do.",
    ),
]


def move(
    table: TableArgument,
    *,
    former: FormerOption,
    yes: YesOption = False,
    given: Common,
) -> None:
    """Have a table go on with a copy of its topic on the cluster that calve.yaml names now.

    Finds the place by the records of both topics: none is lost, none is doubled. A place that they do not prove is refused. One
    commit changes the cluster.

    Example:
      calve move stock_trades --from-cluster former.yaml
    """
    kafka = kafka_in(former, given)
    opened, now = OpenedTable.open(table, given), datetime.now(UTC)
    opened.refuse_second(MOVE)
    position = nearest_position(lake.ancestors(opened.main))
    if position is None or not position.offsets:
        why = "has read nothing yet" if position else "has no snapshot that says which offsets it holds"
        fix = f"run the job once: calve ingest {table}; it begins at `start`, or proves the position"
        raise CalveError(f"{opened.name} {why}", fix=fix)
    region = opened.job.lake.region
    left = Side.of(kafka, region, position.topic)
    copy = Side.of(opened.job.kafka, region, opened.settings.topic)
    if copy.topic.key in position.offsets:
        raise CalveError(
            f"{opened.name} reads topic {copy.topic.key} already",
            fix="let `kafka:` in calve.yaml name the new cluster, deploy, then ask again",
        )
    if left.topic.key != position.newest:
        raise CalveError(
            f"{opened.name} reads topic {position.newest}, and {former} leads to topic {left.topic.key}",
            fix="name the cluster that the table was read from",
        )
    with opened.console.progress().task(f"comparing topic {copy.topic.name} on both clusters"):
        places = Search(left, copy, position.offsets[position.newest]).places()
    rows = [asdict(each) for each in places]
    opened.console.table("offsets", rows)
    offsets = {each.partition: each.offset for each in places}
    ids = str(left.topic.key), str(copy.topic.key)
    request = Move(uuid.uuid4().hex, stamp(now), person(), position.round, *ids, offsets)
    question = f"Move {opened.name} from cluster {left.topic.key.cluster_id} to {copy.topic.key.cluster_id}?"
    entry = opened.ask(
        MOVE, request, question=question, look_at="the offsets", yes=yes, more={"offsets": rows}
    )
    opened.console.say(f"{opened.name}: {entry.told}. The job goes on there with its next round.")
