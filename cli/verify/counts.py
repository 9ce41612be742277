"""Records that make no row of the table: a step left them out, their round skipped them, or other tables have them.

Only their number can be proved: the topic must show as many in each round as its ledger says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from calve.schema.columns import REASONS, UNDELIVERED
from cli.verify.claim import Bounds, Round, Rounds
from cli.verify.findings import Check, Finding
from cli.verify.formats.fields import CONFLUENT, Framing, Unreadable
from cli.verify.topic import Records

LASTING = {
    *("null_value", "truncated", "bad_magic", "malformed", "trailing_bytes", "bad_change", "truncation"),
    *("key_malformed", "null_key"),
    *UNDELIVERED,
}
"""Reasons that a record's bytes always prove. Others change as schemas are registered and tables evolve."""
BY_SCHEMA = "for their schema"
SHOWN = len(REASONS)
"""The most figures of a check: all reasons, or the schemas of most records."""
FURTHER = "further schemas"

Key = tuple[int, int]


@dataclass
class Counted:
    """The numbers of such records, by the ledgers and by the topic.

    `rounds`: of one incarnation of the topic. `complete`: no ledger has expired. `counted`: from the topic, by snapshot; None: it
    has expired. `unknown`: records whose rounds have expired.
    """

    rounds: Sequence[Round] = ()
    complete: bool = True
    framing: Framing = CONFLUENT
    counted: defaultdict[int | None, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    unknown: int = 0
    _reading: Rounds = field(init=False)

    check: ClassVar[str]
    complaint: ClassVar[str]
    """The fault in words, after the name of the snapshot, with both numbers."""
    of: ClassVar[str] = ""
    """What stands before a name."""
    why: ClassVar[str] = "Kafka no longer holds all records of these rounds"
    if_unknown: ClassVar[tuple[str, str]] = ("", "")
    """Name and reason of the check for `unknown` records."""

    def __post_init__(self) -> None:
        self._reading = Rounds(self.rounds)

    def ledger_counts(self, each: Round) -> Counter[str]:
        raise NotImplementedError

    def checks(self, spans: Mapping[int, Bounds], *, compacted: bool, failed: bool) -> Iterator[Check]:
        """The check, if there are such records, and the part that cannot be proved."""
        totals = sum(map(self.ledger_counts, self.rounds), Counter[str]())
        if totals:
            largest = sorted(totals.items(), key=lambda each: (-each[1], each[0]))[:SHOWN]
            figures: dict[str, int | str] = {"records": totals.total()}
            figures |= {f"{self.of}{name}".removeprefix("of "): count for name, count in largest}
            yield Check(self.check, "failed" if failed else "proved", figures)
        gone = sum(
            max(0, self.ledger_counts(each).total() - self.counted[each.snapshot].total())
            for each in self.rounds
            if compacted or not each.held(spans)
        )
        if gone:
            yield Check(f"{self.check} earlier", "not verifiable", {"records": gone, "why": self.why})
        if self.unknown:
            name, why = self.if_unknown
            yield Check(name, "not verifiable", {"records": self.unknown, "why": why})

    def findings(self, spans: Mapping[int, Bounds], *, compacted: bool) -> Iterator[Finding]:
        """Rounds whose ledger has another number of records than the topic."""
        for each in self.rounds:
            said, found = self.ledger_counts(each), self.counted[each.snapshot]
            these, those = _comparable(said), _comparable(found)
            whole = not compacted and each.held(spans)
            if these != those if whole else not those <= these:
                text = self.complaint.format(self._words(said), self._words(found))
                yield Finding(self.check, f"snapshot {each.snapshot} says that {text}")

    def _words(self, counts: Counter[str]) -> str:
        return ", ".join(f"{count} {self.of}{name}" for name, count in sorted(counts.items())) or "none"


def _comparable(counts: Counter[str]) -> Counter[str]:
    """Reasons that depend on schemas count as one: an unknown id may be an incompatible schema now."""
    found = Counter[str]()
    for name, count in counts.items():
        found[BY_SCHEMA if name in REASONS and name not in LASTING else name] += count
    return found


class LeftOut(Counted):
    """Records that steps leave out."""

    check = "left out"
    complaint = "steps left out {}; of its offsets they leave out {}"
    why = "Kafka no longer holds all records of these rounds, or it is not known how they were read"

    def take(self, keys: Iterable[Key]) -> None:
        for key in keys:
            each = self._reading.reading(*key)
            self.counted[each.snapshot if each else None]["records"] += 1

    def ledger_counts(self, each: Round) -> Counter[str]:
        return Counter(records=each.ledger.filtered_by_steps)


@dataclass
class Skips(Counted):
    """Records that rounds skipped (`on_error: skip`).

    A round skipped all records of a schema id together, so the id proves a skip, whatever the registry has today. All else that
    was skipped must be undecodable today as well.

    `found`: records that a round skipped, or may have skipped.
    """

    found: dict[Key, str] = field(default_factory=dict)

    check = "skipped"
    complaint = "it skipped {}; of its offsets {} cannot be rows and are no dead letters"
    if_unknown = (
        "undecodable",
        "they cannot be decoded, and the snapshots that said whether they were skipped have expired",
    )

    def for_their_schema(self, records: Records) -> set[int]:
        """The places of records that their round skipped because of their schema id."""
        frames = {
            each.snapshot: set(map(self.framing.named_frame, each.ledger.skipped_schemas))
            for each in self.rounds
            if each.ledger.skipped_schemas
        }
        found = set()
        for place, value in enumerate(self.framing.of(records, "value") if frames else ()):
            each = self._reading.reading(records.partitions[place], records.offsets[place])
            if value is not None and each and self.framing.start(value) in frames.get(each.snapshot, ()):
                found.add(place)
        return found

    def take(self, key: Key, reason: str) -> bool:
        """Count a record that cannot be decoded; False if it was not skipped and must be a dead letter."""
        skipping = self._reading.reading(*key)
        if self.complete if skipping is None else not skipping.ledger.skipped:
            return False
        if skipping is None:
            self.unknown += key not in self.found
        else:
            self.counted[skipping.snapshot][reason] += 1
        self.found[key] = reason
        return True

    def ledger_counts(self, each: Round) -> Counter[str]:
        return Counter(each.ledger.skipped)


@dataclass
class Filters(Counted):
    """Records of other tables, by their schema.

    A round left all records of a schema id to other tables, or none. A ledger names a limited number of ids; the registry tells
    about the others.

    subjects_of: the subjects of a frame's schema in the registry now; None: it does not know the schema. ours: which of them are
    the table's. `shared`: calve.yaml says that the topic has records of other tables. other: whether a value is another message
    than the table's, if it has one message of its schemas.
    """

    subjects_of: Callable[[bytes], list[str] | None] = lambda _: None
    ours: Callable[[list[str]], list[str]] = list
    shared: bool = False
    other: Callable[[bytes], bool] | None = None
    _foreign: dict[bytes, bool] = field(default_factory=dict)

    check = "filtered"
    complaint = "it left {} to other tables; of its offsets these are {}"
    of = "of schema "
    if_unknown = "of other tables", "the snapshots that said whether they were filtered have expired"

    def __post_init__(self) -> None:
        super().__post_init__()
        names = {name for each in self.rounds for name in each.ledger.filtered_schemas}
        self._named = set(map(self.framing.named_frame, names))

    def foreign(self, frame: bytes) -> bool:
        """Whether the registry knows the schema, under subjects of other tables only."""
        if frame not in self._foreign:
            subjects = self.subjects_of(frame)
            self._foreign[frame] = subjects is not None and not self.ours(subjects)
        return self._foreign[frame]

    def places(self, records: Records) -> dict[int, Round | None]:
        """The places of records that their round left to other tables; None if the round's snapshot has expired."""
        found: dict[int, Round | None] = {}
        values = self.framing.of(records, "value") if self.shared or self._named else []
        for place, value in enumerate(each or b"" for each in values):
            try:
                frame = self.framing.header(value)
            except Unreadable:
                continue
            strange = self.foreign(frame) or (self.other is not None and self.other(value))
            if not strange and (self.other is not None or frame not in self._named):
                continue
            each = self._reading.reading(records.partitions[place], records.offsets[place])
            if each is None:
                if not self.complete and strange:
                    found[place] = None
            elif self._name(value) in each.ledger.filtered_schemas or (
                strange and self.ledger_counts(each)[FURTHER] > 0
            ):
                found[place] = each
        return found

    def _name(self, value: bytes | None) -> str:
        """The id of a value's schema, as ledgers write it."""
        return self.framing.name(self.framing.schema_id(self.framing.start(value or b"")))

    def take(self, records: Records, others: Mapping[int, Round | None]) -> None:
        """Count records of other tables: those at these places."""
        values = self.framing.of(records, "value") if others else []
        for place, each in others.items():
            if each is None:
                self.unknown += 1
                continue
            name = self._name(values[place])
            self.counted[each.snapshot][name if name in each.ledger.filtered_schemas else FURTHER] += 1

    def ledger_counts(self, each: Round) -> Counter[str]:
        ledger = each.ledger
        further = ledger.filtered - ledger.filtered_by_steps - sum(ledger.filtered_schemas.values())
        return Counter(ledger.filtered_schemas | ({FURTHER: further} if further else {}))

    def findings(self, spans: Mapping[int, Bounds], *, compacted: bool) -> Iterator[Finding]:
        """As `Counted.findings`; also rounds that left records of the table's own schemas to others."""
        yield from super().findings(spans, compacted=compacted)
        for each in self.rounds:
            for name, count in each.ledger.filtered_schemas.items():
                subjects = self.subjects_of(self.framing.named_frame(name))
                if (own := self.ours(subjects or [])) and self.other is None:
                    text = (
                        f"snapshot {each.snapshot} left {count} records of schema {name} to other tables; the"
                        f" schema is of subject {', '.join(own)}, which is this table's"
                    )
                    yield Finding(self.check, text)
