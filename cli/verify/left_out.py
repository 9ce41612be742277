"""Records that steps leave out: they are in no table, and their number is as the rounds say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cli.verify.claim import Round
from cli.verify.findings import Check, Finding
from cli.verify.places import Rounds
from cli.verify.skips import Key, Span, held

CHECK = "left out"


@dataclass(slots=True)
class LeftOut:
    """What the ledgers say that steps left out, and what the topic shows of it; `counted`: by snapshot, None: it has expired."""

    rounds: Sequence[Round] = ()
    counted: Counter[int | None] = field(default_factory=Counter)
    _reading: Rounds = field(init=False)

    def __post_init__(self) -> None:
        self._reading = Rounds(self.rounds)

    def take(self, keys: Iterable[Key]) -> None:
        """Count records that steps leave out."""
        for key in keys:
            each = self._reading.reading(*key)
            self.counted[each.snapshot if each else None] += 1

    def checks(self, spans: Mapping[int, Span], *, compacted: bool, failed: bool) -> Iterator[Check]:
        """The check, where anything was left out, and what cannot be proved."""
        if total := sum(each.ledger.filtered_by_steps for each in self.rounds):
            yield Check(CHECK, "failed" if failed else "proved", {"records": total})
        gone = sum(
            max(0, each.ledger.filtered_by_steps - self.counted[each.snapshot])
            for each in self.rounds
            if compacted or not held(each, spans)
        )
        if gone:
            why = "Kafka no longer holds all records of these rounds, or how they were read is not known"
            yield Check("left out earlier", "not verifiable", {"records": gone, "why": why})

    def findings(self, spans: Mapping[int, Span], *, compacted: bool) -> Iterator[Finding]:
        """Rounds that say they left out another number of records than the steps leave out of those that they read."""
        for each in self.rounds:
            said, found = each.ledger.filtered_by_steps, self.counted[each.snapshot]
            whole = not compacted and held(each, spans)
            if found > said or (whole and found != said):
                text = f"snapshot {each.snapshot} says that steps left out {said} records; of its offsets they leave out {found}"
                yield Finding(CHECK, text)
