"""What expired snapshots of a table said: kept in a property, in short, so that the table can still be proved (ADR 30).

Rounds in a row that were read alike become one, with one ledger: from where the first began to where the last ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from calve.config.job import Budget
from calve.requests.backfill import Range, remade_json
from calve.rounds.dead_letter_policy import RejectCounts, UsedBudget
from calve.table.position import Ledger, Offsets, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import (
    EARLIER,
    MODE,
    REDRIVE,
    REMADE,
    ends_of,
    is_first,
    is_round,
    ledger_of,
    metrics_of,
    remade_of,
    round_of,
    starts_of,
    topic_of,
)

MOST_SPANS = 200
"""More changes of how a topic is read are not kept: the table's beginning is not known then."""

STEPS = 60
"""A budget's time is remembered in so many steps."""


@dataclass(frozen=True, slots=True)
class Span:
    """Rounds of one incarnation of a topic that were read alike, as `cli.verify.claim.Round` has one of them.

    sequence: Iceberg's number of the first of them. round: of a redrive, which is a span of its own and reads no offsets; None:
    these are rounds. remade: of a backfill, which is one of its own, too.
    """

    topic: TopicKey
    start: Offsets
    to: Offsets
    ledger: Ledger
    sequence: int = 0
    read_with: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = None
    round: str | None = None
    remade: Range = field(default_factory=dict)

    def joined(self, later: Span) -> Span | None:
        """Both as one; None where they cannot be."""
        alike = (self.topic, self.read_with, self.mode) == (later.topic, later.read_with, later.mode)
        if any(each.round or each.remade for each in (self, later)) or not alike:
            return None
        return replace(
            self, start=later.start | self.start, to=later.to, ledger=self.ledger.plus(later.ledger)
        )

    def raw(self) -> dict[str, Any]:
        found: dict[str, Any] = {"topic": str(self.topic), "from": self.start, "to": self.to}
        found |= {"ledger": self.ledger.to_json(), "read_with": dict(self.read_with)}
        found |= {"sequence": self.sequence, "mode": self.mode, "round": self.round}
        found |= {REMADE: remade_json(self.remade)} if self.remade else {}
        return {name: each for name, each in found.items() if each is not None}

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        start, to = ({int(p): o for p, o in raw[name].items()} for name in ("from", "to"))
        ledger = Ledger.from_json(raw["ledger"])
        topic = TopicKey.parse(raw["topic"])
        told = raw["sequence"], raw["read_with"], raw.get("mode"), raw.get("round")
        return cls(topic, start, to, ledger, *told, remade_of(raw))


@dataclass(frozen=True, slots=True)
class ExpiredHistory:
    """What was said below the snapshot `before`, oldest first; it counts only as long as that one is an ancestor of main.

    born: from the table's first snapshot on. complete_until: the newest claim (`calve.table.protocol.complete_until`). spent: of
    the budget of dead letters, within its time.
    """

    before: int
    spans: tuple[Span, ...]
    born: bool
    complete_until: float | None = None
    spent: tuple[UsedBudget, ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, str], line: Iterable[Commit]) -> Self | None:
        """What a table's properties say; None where they say nothing that counts for main, whose ancestors are `line`."""
        text = properties.get(EARLIER)
        raw = json.loads(text) if text else None
        if raw is None or all(each.id != raw["before"] for each in line):
            return None
        spent = tuple(UsedBudget(at, RejectCounts(records, rejects)) for at, records, rejects in raw["spent"])
        return cls(
            raw["before"], tuple(map(Span.of, raw["spans"])), raw["born"], raw["complete_until"], spent
        )

    def to_json(self) -> str:
        raw = {"before": self.before, "spans": [each.raw() for each in self.spans], "born": self.born}
        spent = [(each.at, each.tally.records, each.tally.rejects) for each in self.spent]
        return json.dumps(raw | {"complete_until": self.complete_until, "spent": spent})

    def rest(self, line: Sequence[Commit]) -> list[Commit]:
        """Those of main's ancestors that this does not tell of."""
        return list(line[: [each.id for each in line].index(self.before) + 1])


def earlier(
    line: Sequence[Commit], kept: int, known: ExpiredHistory | None, budget: Budget
) -> ExpiredHistory:
    """What is to be known when of main's ancestors, the newest first, only so many stay; `known`: what is known already."""
    gone = (known.rest(line) if known else list(line))[kept:]
    first = known is None and is_first(line[-1].summary)
    spans = list(known.spans) if known else []
    until = known.complete_until if known else None
    for commit in reversed(gone):
        if (span := _span(commit)) is not None:
            both = spans[-1].joined(span) if spans else None
            spans[-1:] = [both] if both else [*spans[-1:], span]
        claimed = metrics_of(commit.summary).get("complete_until")
        until = until if claimed is None else float(claimed)
    born = (known.born if known else first) and len(spans) <= MOST_SPANS
    spent = _spent(known.spent if known else (), reversed(gone), budget)
    return ExpiredHistory(line[kept - 1].id, tuple(spans[-MOST_SPANS:]), born, until, spent)


def _spent(known: Iterable[UsedBudget], gone: Iterable[Commit], budget: Budget) -> tuple[UsedBudget, ...]:
    """In steps of the clock, each at the moment of its last round."""
    found, step_s = list(known), budget.within_s / STEPS
    for commit in gone:
        if not is_round(commit.summary):
            continue
        at, tally = commit.committed_at, RejectCounts.of(ledger_of(commit.summary))
        if found and found[-1].at // step_s == at // step_s:
            tally = found.pop().tally.plus(tally.records, tally.rejects)
        found.append(UsedBudget(at, tally))
    return tuple(each for each in found if found[-1].at - each.at <= budget.within_s)


def _span(commit: Commit) -> Span | None:
    summary = commit.summary
    if not is_round(summary):
        return None
    topic = topic_of(summary)
    return Span(
        topic,
        starts_of(summary).get(topic, {}),
        ends_of(summary).get(topic, {}),
        ledger_of(summary),
        commit.sequence,
        metrics_of(summary).get("read_with", {}),
        summary.get(MODE),
        round_of(summary) if REDRIVE in summary else None,
        remade_of(summary),
    )
