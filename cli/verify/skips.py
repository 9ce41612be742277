"""Records that rounds say they skipped (`on_error: skip`): they are in no table, so only their number can be proved.

What a round skipped for its schema is told by the schema's id, which all records of that id shared in that round: whatever the
registry says today. All else that was skipped must be undecodable today as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from calve.columns import UNDELIVERED
from cli.verify.claim import Round
from cli.verify.findings import Check, Finding
from cli.verify.framing import CONFLUENT, Framing
from cli.verify.topic import Records

CHECK = "skipped"
LASTING = {
    *("null_value", "truncated", "bad_magic", "malformed", "trailing_bytes", "bad_change"),
    *("key_malformed", "null_key"),
    *UNDELIVERED,
}
"""Reasons that a record's bytes prove for ever. The others need not be true now: schemas are registered, tables evolve."""

BY_SCHEMA = "for their schema"

Key = tuple[int, int]
Span = tuple[int, int]


@dataclass(slots=True)
class Skips:
    """What the ledgers say was skipped, and what the topic shows of it.

    `rounds` are those of one incarnation of the topic. `complete`: no round's ledger has expired. `found` are the records
    that a round skipped, or may have: those that `unknown` names are of rounds whose ledgers are gone.
    """

    rounds: Sequence[Round] = ()
    complete: bool = True
    framing: Framing = CONFLUENT
    found: dict[Key, str] = field(default_factory=dict)
    counted: dict[int, dict[str, int]] = field(default_factory=dict)
    unknown: set[Key] = field(default_factory=set)
    _frames: dict[bytes, list[Round]] = field(init=False)

    def __post_init__(self) -> None:
        self._frames = {}
        for each in self.rounds:
            for schema_id in each.ledger.skipped_schemas:
                self._frames.setdefault(self.framing.named(schema_id), []).append(each)

    def for_their_schema(self, records: Records) -> set[int]:
        """The places of records that their round skipped because of their schema id."""
        if not self._frames:
            return set()
        return {
            place
            for place, value in enumerate(records.values)
            if value is not None
            and (rounds := self._frames.get(self.framing.plain_frame(value)))
            and any(each.covers(records.partitions[place], records.offsets[place]) for each in rounds)
        }

    def take(self, key: Key, reason: str) -> bool:
        """Note a record that cannot be decoded; False where it was not skipped, so that it must be a dead letter."""
        skipping = next((each for each in self.rounds if each.covers(*key)), None)
        if skipping is None:
            if self.complete:
                return False
            self.unknown.add(key)
        elif not skipping.ledger.skipped:
            return False
        else:
            reasons = self.counted.setdefault(skipping.snapshot, {})
            reasons[reason] = reasons.get(reason, 0) + 1
        self.found[key] = reason
        return True

    def checks(self, spans: Mapping[int, Span], *, compacted: bool, failed: bool) -> Iterator[Check]:
        """The check, where anything was skipped, and what cannot be proved."""
        totals: dict[str, int] = {}
        for each in self.rounds:
            for reason, count in each.ledger.skipped.items():
                totals[reason] = totals.get(reason, 0) + count
        if totals:
            figures = {"records": sum(totals.values())} | dict(sorted(totals.items()))
            yield Check(CHECK, "failed" if failed else "proved", dict(figures))
        gone = sum(
            max(0, sum(each.ledger.skipped.values()) - self._count(each))
            for each in self.rounds
            if each.ledger.skipped and (compacted or not held(each, spans))
        )
        if gone:
            why = "Kafka no longer holds all records of these rounds"
            yield Check("skipped earlier", "not verifiable", {"records": gone, "why": why})
        if self.unknown:
            why = "they cannot be decoded, and the snapshots that said whether they were skipped have expired"
            yield Check("undecodable", "not verifiable", {"records": len(self.unknown), "why": why})

    def findings(self, spans: Mapping[int, Span], *, compacted: bool) -> Iterator[Finding]:
        """Rounds that say they skipped another number of records than the topic has of those that must be skipped."""
        for each in self.rounds:
            if not each.ledger.skipped:
                continue
            said, found = _comparable(each.ledger.skipped), _comparable(self.counted.get(each.snapshot, {}))
            whole = not compacted and held(each, spans)
            wrong = (
                said != found
                if whole
                else any(count > said.get(reason, 0) for reason, count in found.items())
            )
            if wrong:
                text = (
                    f"snapshot {each.snapshot} says that it skipped {_words(each.ledger.skipped)}; of its offsets"
                    f" {_words(self.counted.get(each.snapshot, {}))} cannot be rows and are no dead letters"
                )
                yield Finding(CHECK, text)

    def _count(self, each: Round) -> int:
        return sum(self.counted.get(each.snapshot, {}).values())


def _comparable(reasons: Mapping[str, int]) -> dict[str, int]:
    """Reasons that depend on schemas as one: an id that was unknown then may be incompatible now."""
    found: dict[str, int] = {}
    for reason, count in reasons.items():
        name = reason if reason in LASTING else BY_SCHEMA
        found[name] = found.get(name, 0) + count
    return found


def held(each: Round, spans: Mapping[int, Span]) -> bool:
    """True where Kafka still has every offset that the round read."""
    started = each.start.get(each.topic, {})
    return all(
        spans.get(partition, (0, 0))[0] <= first and to <= spans.get(partition, (0, 0))[1]
        for partition, to in each.to.get(each.topic, {}).items()
        if (first := started.get(partition, to)) < to
    )


def _words(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items())) or "none"
