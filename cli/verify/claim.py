"""The table's claim: the offsets that it holds by the snapshots of main's history, and whether their ledgers balance."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from itertools import pairwise
from math import inf
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np

from calve.errors import Suspended
from calve.requests.expired_history import ExpiredHistory, Span, span_of
from calve.table.position import Ledger, Offsets, Position, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import ADOPT, ADOPTED, ends_of, has_position, kind_of, round_of, starts_of, topic_of
from cli import lake
from cli.verify.findings import Check, Finding

if TYPE_CHECKING:
    from pyiceberg.table import Table

CHECK = "ledgers"
Bounds = tuple[int, int]
"""Offsets of a partition: from the first to the one after the last."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The offsets [start, to) of the topic's newest incarnation.

    `known_from_birth`: the history begins with the first, empty snapshot; nothing has expired. `rounds`, `redrives`: all that are
    left, newest first, and the sums of expired ones, unless the order of rounds matters. `totals`: the sum of the ledgers of this
    incarnation. `own`: Iceberg's sequence numbers [from, to) of files with its rows. `adopted`: number of rows of a former
    writer, which have no offset from `start` on; None: calve made the table.
    """

    position: Position
    topic: TopicKey
    start: Offsets
    to: Offsets
    known_from_birth: bool
    totals: Ledger
    rounds: tuple[Round, ...]
    redrives: tuple[Round, ...] = ()
    own: tuple[int, float] = (0, inf)
    adopted: int | None = None

    @property
    def mixed(self) -> bool:
        """Whether the table has rows of other incarnations."""
        return self.own != (0, inf) or not all(self.of_snapshots.values())

    @property
    def of_snapshots(self) -> dict[int, bool]:
        """Snapshots that added files, and whether their rows are of this incarnation."""
        return {each.snapshot: each.topic == self.topic for each in (*self.rounds, *self.redrives)}


@dataclass(frozen=True, slots=True)
class Round(Span):
    """A data commit, or several of them that have expired. snapshot: its id; below 0: it has expired."""

    snapshot: int = 0

    @classmethod
    def of_span(cls, span: Span, snapshot: int) -> Round:
        return cls(**{each.name: getattr(span, each.name) for each in fields(span)}, snapshot=snapshot)

    def remakes(self, partition: int, offset: int) -> bool:
        start, to = self.remade.get(partition, (0, 0))
        return start <= offset < to

    def covers(self, partition: int, offset: int) -> bool:
        first = self.start.get(partition)
        return first is not None and first <= offset < self.to.get(partition, 0)

    def held(self, spans: Mapping[int, Bounds]) -> bool:
        """Whether these spans have every offset that the round read."""
        return all(
            spans.get(partition, (0, 0))[0] <= first and to <= spans.get(partition, (0, 0))[1]
            for partition, to in self.to.items()
            if (first := self.start.get(partition, to)) < to
        )


class Rounds:
    """The rounds of one incarnation of a topic, by the offsets that they read."""

    def __init__(self, rounds: Iterable[Round]) -> None:
        self._starts: dict[int, list[tuple[int, int, Round]]] = {}
        for each in rounds:
            for partition, first in each.start.items():
                to = each.to.get(partition, first)
                self._starts.setdefault(partition, []).append((first, to, each))
        for starts in self._starts.values():
            starts.sort(key=lambda each: each[:2])

    def reading(self, partition: int, offset: int) -> Round | None:
        """The round that read an offset; None if its snapshot has expired."""
        starts = self._starts.get(partition, [])
        at = bisect_right(starts, offset, key=lambda each: each[0]) - 1
        return starts[at][2] if at >= 0 and offset < starts[at][1] else None


def numbers_of(rounds: Sequence[Round], partitions: Any, offsets: Any) -> Any:
    """The number of the round, oldest first, that read each record; -1 for none of them. Arrays are numpy's."""
    found = np.full(len(offsets), -1)
    for partition in np.unique(partitions).tolist():
        starts = (each.start.get(partition) for each in rounds)
        start = next((each for each in starts if each is not None), 0 if rounds else np.inf)
        ends = [each.to.get(partition, 0) for each in rounds]
        here = partitions == partition
        numbers = np.searchsorted(ends, offsets[here], side="right")
        found[here] = np.where(offsets[here] < start, -1, numbers)
    return found


def numbers_of_redrives(claim: Claim, rounds: Sequence[Round]) -> dict[str, float]:
    """Each redrive lies between two rounds; several between the same two keep their order. Rounds have the numbers from 0."""
    redrives = [each for each in reversed(claim.redrives) if each.topic == claim.topic]
    found: dict[str, float] = {}
    for n, each in enumerate(redrives):
        before = sum(all(each.to.get(p, 0) >= o for p, o in other.to.items()) for other in rounds)
        found[each.round or ""] = before - 0.5 + (n + 1) / (2 * len(redrives) + 2)
    return found


def read_claim(table: Table, cluster_id: str | None = None) -> tuple[Claim, Check, list[Finding]]:
    """The table's claim, and the faults of its ledgers. cluster_id: of the topic to prove; None: the one that it reads now.

    Raises:
        Suspended: neither main's history nor the position's tag says which offsets the table holds.
    """
    history: list[Commit] = [*lake.ancestors(table)]
    known = ExpiredHistory.of(table.properties, history)
    expired = known if known and all(kind_of(each.mode) == "append" for each in known.spans) else None
    if expired is not None:
        history = expired.rest(history)
    adopted = next((n for n, each in enumerate(history) if ADOPT in each.summary), len(history))
    history = history[: adopted + 1]
    latest = lake.latest_commit(table)
    if latest is None:
        raise Suspended(
            "position_lost",
            f"no snapshot in the history of {'.'.join(table.name())} says which offsets the table holds",
            fix="was it made by calve? A table that was replaced, or whose history was expired, cannot be verified",
        )
    _, position = latest
    before = [Round.of_span(each, -n) for n, each in enumerate(expired.spans, 1)] if expired else []
    commits = [*rounds_of(history), *reversed(before)]
    rounds = [each for each in commits if each.round is None]
    redrives = [each for each in commits if each.round is not None]
    findings = [finding for each in commits for finding in ledger_problems(each)] + chain_problems(history)
    topics = [*(each.topic for each in rounds[:1]), *reversed(position.offsets), position.newest]
    topic = next((each for each in topics if each.cluster_id == cluster_id), topics[0])
    own = [each for each in commits if each.topic == topic]
    first = history[-1].summary
    born = expired.born if expired else has_position(first) and (ADOPT in first or not ends_of(first))
    former = table.properties.get(ADOPTED)
    claim = Claim(
        position=position,
        topic=topic,
        start=reduce(or_, (each.start for each in own if each.round is None), Offsets()),
        to=position.offsets.get(topic, {}),
        known_from_birth=born,
        totals=reduce(Ledger.plus, (each.ledger for each in own), Ledger()),
        rounds=tuple(rounds),
        redrives=tuple(redrives),
        own=_own(position, topic, history, known),
        adopted=None if former is None else int(former),
    )
    totals = claim.totals
    rare = {
        "skipped": sum(totals.skipped.values()),
        "redrives": len(redrives),
        "redriven": totals.redriven,
        "deduplicated": totals.deduplicated,
        "filtered": totals.filtered,
    }
    figures: dict[str, int | str] = {"rounds": len(rounds), "offsets": totals.span}
    figures |= {"applied": totals.applied, "dead_lettered": totals.dead_lettered}
    figures |= {name: count for name, count in rare.items() if count or (redrives and name == "redriven")}
    figures |= {"gaps": totals.gaps, "lost": totals.lost}
    if expired and born:
        figures["history"] = "older snapshots have expired, their ledgers are summed up"
    elif not born:
        figures["history"] = "older snapshots have expired"
    return claim, Check(CHECK, "failed" if findings else "proved", figures), findings


def _own(
    position: Position, topic: TopicKey, history: list[Commit], known: ExpiredHistory | None
) -> tuple[int, float]:
    """The sequence numbers of the topic's rounds, from its first to the first of an incarnation after it."""
    if len(position.offsets) < 2:
        return 0, inf
    read = [(topic_of(each.summary), each.sequence) for each in history if starts_of(each.summary)]
    read += [(each.topic, each.sequence) for each in (known.spans if known else ()) if each.start]
    first = min((sequence for of, sequence in read if of == topic), default=0)
    after = (sequence for of, sequence in read if of != topic and sequence > first)
    return first, min(after, default=inf)


def rounds_of(history: list[Commit]) -> list[Round]:
    """Data commits, newest first; a position that another commit carries forward is not a round."""
    found: dict[str, Round] = {}
    for commit in reversed(history):
        if (span := span_of(commit)) is not None:
            found.setdefault(round_of(commit.summary) or "", Round.of_span(span, commit.id))
    return list(found.values())[::-1]


def ledger_problems(each: Round) -> list[Finding]:
    problems = []
    if imbalance := each.ledger.imbalance():
        problems.append(f"the ledger of snapshot {each.snapshot} does not balance: {imbalance}")
    span = sum(each.to.get(partition, first) - first for partition, first in each.start.items())
    if span != each.ledger.span:
        problems.append(
            f"the ledger of snapshot {each.snapshot} explains {each.ledger.span} offsets of {span}"
        )
    return [Finding(CHECK, problem) for problem in problems]


def chain_problems(history: list[Commit]) -> list[Finding]:
    """Rounds that do not begin where the one before ended, and other commits that move a position."""
    findings = []
    moves = [
        (each.id, starts_of(each.summary), ends_of(each.summary))
        for each in reversed(history)
        if has_position(each.summary)
    ]
    for (_, _, before), (snapshot, start, to) in pairwise(moves):
        ends = ((topic, *place) for topic, offsets in before.items() for place in offsets.items())
        for topic, partition, ended in ends:
            began = start.get(topic, {}).get(partition)
            now = to.get(topic, {}).get(partition)
            if now != ended and (began != ended or now is None or now < ended):
                text = f"snapshot {snapshot} reads [{began}, {now}), the round before it ended at {ended}"
                findings.append(Finding(CHECK, text, partition))
    return findings
