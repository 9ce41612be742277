"""A short history of a table's expired snapshots in a property, so that `calve verify` still has all rounds (ADR 30)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from calve.config.job import Budget
from calve.requests.time_travel import Range, remade_json
from calve.rounds.dead_letter_policy import RejectCounts, UsedBudget
from calve.table.position import Ledger, Offsets, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import (
    ADOPT,
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
"""The most spans that are kept. With more, the start of the table is unknown."""

STEPS = 60
"""The number of time steps in which the used budget is stored."""


@dataclass(frozen=True, slots=True)
class Span:
    """Rounds of one incarnation of a topic that were read in the same way; `cli.verify.claim.Round` is a single one.

    sequence: Iceberg's sequence number of the first. round: set for a redrive, which is its own span and reads no offsets.
    remade: set for a backfill, which is also its own span.
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
        """Both as one span; None if they cannot be joined."""
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
        rest = raw["sequence"], raw["read_with"], raw.get("mode"), raw.get("round")
        return cls(topic, start, to, ledger, *rest, remade_of(raw))


@dataclass(frozen=True, slots=True)
class ExpiredHistory:
    """The history below the snapshot `before`, oldest first. It counts only while that snapshot is an ancestor of main.

    born: it begins with the table's first snapshot. complete_until: the newest claim (`calve.table.protocol.complete_until`).
    spent: the used dead-letter budget, within its time.
    """

    before: int
    spans: tuple[Span, ...]
    born: bool
    complete_until: float | None = None
    spent: tuple[UsedBudget, ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, str], line: Iterable[Commit]) -> Self | None:
        """The history in a table's properties; None if there is none that applies to main, whose ancestors are `line`."""
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
        spent = [(each.at, each.counts.records, each.counts.rejects) for each in self.spent]
        return json.dumps(raw | {"complete_until": self.complete_until, "spent": spent})

    def rest(self, line: Sequence[Commit]) -> list[Commit]:
        """The ancestors of main that this history does not cover."""
        return list(line[: [each.id for each in line].index(self.before) + 1])


def earlier(
    line: Sequence[Commit], kept: int, known: ExpiredHistory | None, budget: Budget
) -> ExpiredHistory:
    """The history if only the `kept` newest of main's ancestors stay; `known`: the history so far."""
    gone = (known.rest(line) if known else list(line))[kept:]
    first = known is None and is_first(line[-1].summary)
    spans = list(known.spans) if known else []
    until = known.complete_until if known else None
    for commit in reversed(gone):
        if ADOPT in commit.summary:
            first, spans = True, []
        if (span := span_of(commit)) is not None:
            both = spans[-1].joined(span) if spans else None
            spans[-1:] = [both] if both else [*spans[-1:], span]
        claimed = metrics_of(commit.summary).get("complete_until")
        until = until if claimed is None else float(claimed)
    born = (known.born if known else first) and len(spans) <= MOST_SPANS
    spent = _spent(known.spent if known else (), reversed(gone), budget)
    return ExpiredHistory(line[kept - 1].id, tuple(spans[-MOST_SPANS:]), born, until, spent)


def _spent(known: Iterable[UsedBudget], gone: Iterable[Commit], budget: Budget) -> tuple[UsedBudget, ...]:
    """The used budget in time steps, each at the time of its last round."""
    found, step_s = list(known), budget.within_s / STEPS
    for commit in gone:
        if not is_round(commit.summary):
            continue
        at, counts = commit.committed_at, RejectCounts.of(ledger_of(commit.summary))
        if found and found[-1].at // step_s == at // step_s:
            counts = found.pop().counts + counts
        found.append(UsedBudget(at, counts))
    return tuple(each for each in found if found[-1].at - each.at <= budget.within_s)


def span_of(commit: Commit) -> Span | None:
    """The span of one round; None: the commit is not a round."""
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
