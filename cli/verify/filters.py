"""Records that rounds say belong to other tables: their schema is none of the table's, and their number is as the rounds say.

All records with one schema id shared their fate in a round. A ledger names the ids, up to so many; whoever comes after
those is told from the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cli.verify.claim import Round
from cli.verify.findings import Check, Finding
from cli.verify.framing import CONFLUENT, Framing
from cli.verify.places import Rounds
from cli.verify.skips import Span, held
from cli.verify.topic import Records

CHECK = "filtered"
SHOWN = 10
FURTHER = "further schemas"


def _nobodys(_frame: bytes) -> list[str] | None:
    return None


@dataclass(slots=True)
class Filters:
    """What the ledgers say was left to other tables, and what the topic shows of it.

    subjects_of: the subjects of a frame's schema as the registry has them now; None where it does not know the schema.
    ours: which of them are the table's. `shared`: the topic holds records of other tables, as the configuration says now.
    other: where the table holds one message of its schemas, whether a value of those is another one.
    """

    rounds: Sequence[Round] = ()
    complete: bool = True
    framing: Framing = CONFLUENT
    subjects_of: Callable[[bytes], list[str] | None] = _nobodys
    ours: Callable[[list[str]], list[str]] = list
    shared: bool = False
    other: Callable[[bytes], bool] | None = None
    counted: dict[int, dict[str, int]] = field(default_factory=dict)
    unknown: int = 0
    _reading: Rounds = field(init=False)
    _foreign: dict[bytes, bool] = field(default_factory=dict)
    _named: set[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._reading = Rounds(self.rounds)
        names = {name for each in self.rounds for name in each.ledger.filtered_schemas}
        self._named = {self.framing.named(name) for name in names}

    def foreign(self, frame: bytes) -> bool:
        """Whether the registry knows the schema, and it is of other subjects than the table's."""
        if frame not in self._foreign:
            subjects = self.subjects_of(frame)
            self._foreign[frame] = subjects is not None and not self.ours(subjects)
        return self._foreign[frame]

    def places(self, records: Records) -> dict[int, Round | None]:
        """The places of records that their round left to other tables; None where nothing says which round that was."""
        found: dict[int, Round | None] = {}
        if not (self.shared or self._named):
            return found
        for place, value in enumerate(records.values):
            if value is None or len(value) < self.framing.size or not value.startswith(self.framing.starts):
                continue
            frame = self.framing.plain_frame(value)
            strange = self.foreign(frame) or (self.other is not None and self.other(value))
            if not strange and (self.other is not None or frame not in self._named):
                continue
            each = self._reading.reading(records.partitions[place], records.offsets[place])
            if each is None:
                if not self.complete and strange:
                    found[place] = None
            elif self._of(each, frame, strange=strange):
                found[place] = each
        return found

    def keys(self, records: Records) -> Iterator[tuple[int, int]]:
        """Partition and offset of those records."""
        for place in self.places(records):
            yield records.partitions[place], records.offsets[place]

    def own(self, records: Records, *, count: bool) -> Records:
        """The records without those; `count` them."""
        places = self.places(records)
        if count:
            self.take(records, places)
        if not places:
            return records
        return records.select([place for place in range(len(records)) if place not in places])

    def take(self, records: Records, places: Mapping[int, Round | None]) -> None:
        """Count the records at these places."""
        for place, each in places.items():
            if each is None:
                self.unknown += 1
                continue
            name = self.framing.name(self.framing.plain_frame(records.values[place] or b""))
            schemas = self.counted.setdefault(each.snapshot, {})
            name = name if name in each.ledger.filtered_schemas else FURTHER
            schemas[name] = schemas.get(name, 0) + 1

    def checks(self, spans: Mapping[int, Span], *, compacted: bool, failed: bool) -> Iterator[Check]:
        """The check, where anything was filtered, and what cannot be proved."""
        totals: dict[str, int] = {}
        for each in self.rounds:
            for name, count in _said(each).items():
                totals[name] = totals.get(name, 0) + count
        if totals:
            largest = sorted(totals.items(), key=lambda each: (-each[1], each[0]))[:SHOWN]
            figures = {"records": sum(totals.values())} | {f"schema {name}": n for name, n in largest}
            yield Check(CHECK, "failed" if failed else "proved", dict(figures))
        gone = sum(
            max(0, left - sum(self.counted.get(each.snapshot, {}).values()))
            for each in self.rounds
            if (left := _left_to_others(each)) and (compacted or not held(each, spans))
        )
        for name, count, why in (
            ("filtered earlier", gone, "Kafka no longer holds all records of these rounds"),
            (
                "of other tables",
                self.unknown,
                "the snapshots that said whether they were filtered have expired",
            ),
        ):
            if count:
                yield Check(name, "not verifiable", {"records": count, "why": why})

    def findings(self, spans: Mapping[int, Span], *, compacted: bool) -> Iterator[Finding]:
        """Rounds that filtered another number of records than the topic has, or records of the table's own schemas."""
        for each in self.rounds:
            said, found = _said(each), self.counted.get(each.snapshot, {})
            whole = not compacted and held(each, spans)
            if said != found and (whole or any(count > said.get(name, 0) for name, count in found.items())):
                yield Finding(
                    CHECK,
                    f"snapshot {each.snapshot} says that it left {_words(said)} to other tables; of its offsets"
                    f" these are {_words(found)}",
                )
            for name, count in each.ledger.filtered_schemas.items():
                subjects = self.subjects_of(self.framing.named(name))
                if (own := self.ours(subjects or [])) and self.other is None:
                    yield Finding(
                        CHECK,
                        f"snapshot {each.snapshot} left {count} records of schema {name} to other tables; the schema"
                        f" is of subject {', '.join(own)}, which is this table's",
                    )

    def _of(self, each: Round, frame: bytes, *, strange: bool) -> bool:
        """Whether a round that read a record of this schema left it to other tables."""
        schemas = each.ledger.filtered_schemas
        if self.framing.name(frame) in schemas:
            return True
        return _left_to_others(each) > sum(schemas.values()) and strange


def _left_to_others(each: Round) -> int:
    return each.ledger.filtered - each.ledger.filtered_by_steps


def _said(each: Round) -> dict[str, int]:
    named = each.ledger.filtered_schemas
    further = _left_to_others(each) - sum(named.values())
    return dict(named) | ({FURTHER: further} if further else {})


def _words(schemas: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of schema {name}" for name, count in sorted(schemas.items())) or "none"
