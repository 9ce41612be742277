"""Redrive: dead letters that can be rows now enter their table, once, by a commit that reads no offsets (ADR 12)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar, Self

from calve.requests.expired_history import Span, span_of
from calve.requests.requests import WaitingRequest
from calve.stored import Stored
from calve.table.dead_letters import dead_letters_round
from calve.table.position import (
    NO_DEAD_LETTERS,
    DeadLetterRound,
    Ledger,
    Offsets,
    Position,
    TopicKey,
)
from calve.table.protocol import Commit
from calve.table.summary import REDRIVE, REDRIVE_RESULT, kind_of, ledger_of, round_of


@dataclass(frozen=True, slots=True)
class Request(WaitingRequest):
    """The open dead letters to decode again; None: any. `since`, `until` (exclusive): when they were rejected, in ISO 8601."""

    NAME: ClassVar[str] = REDRIVE
    reason: str | None = None
    schema_id: int | None = None
    since: str | None = None
    until: str | None = None

    def to_json(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True, slots=True)
class Result(Stored):
    """The outcome of a request's selected dead letters. `problem`: why nothing was done."""

    id: str
    at: str
    selected: int = 0
    redriven: int = 0
    present: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    problem: str | None = None
    overtaken: int = 0

    @classmethod
    def of(cls, properties: Mapping[str, str], request_id: str) -> Self | None:
        text = properties.get(REDRIVE_RESULT)
        found = cls.from_json(text) if text else None
        return found if found and found.id == request_id else None


def is_level(main: Position, dead_letters: Iterable[Commit]) -> bool:
    """True if the dead-letter table is level with main; only then may dead letters be selected from it."""
    return dead_letters_round(dead_letters) == (
        main.dead_letters.round if main.dead_letters else NO_DEAD_LETTERS
    )


def position_after(base: Position, *, round_id: str, writer: str, held: DeadLetterRound) -> Position:
    """The position after a redrive: no offset moves, and main names the redriven dead letters."""
    previous = base.dead_letters.round if base.dead_letters else NO_DEAD_LETTERS
    return replace(
        base,
        round=round_id,
        writer=writer,
        snapshot=None,
        dead_letters=replace(held, previous=previous, redriven=True),
        redrives=base.redrives + 1,
    )


def done_before(ancestors: Iterable[Commit], request_id: str) -> Ledger:
    """What commits of the same request have already done: a job may crash between them, or before it answers."""
    ledgers = {
        round_of(commit.summary): ledger_of(commit.summary)
        for commit in ancestors
        if commit.summary.get(REDRIVE) == request_id
    }.values()
    sums = {
        name: sum(getattr(each, name) for each in ledgers) for name in ("redriven", "present", "overtaken")
    }
    return Ledger(**sums)


@dataclass(frozen=True, slots=True)
class RoundsSince:
    """The rounds of a topic since one of them, oldest first. start: its first offsets; None: unknown. ends: exclusive."""

    start: Offsets | None
    ends: tuple[Offsets, ...]

    @classmethod
    def of(cls, line: Iterable[Commit], topic: TopicKey, places: Offsets) -> Self:
        """From the round that read the lowest of these offsets. line: the ancestors of main, newest first.

        Rounds that appended, before the table had a key, count as one: their records were folded together.
        """
        rounds: list[Span] = []
        for each in reversed([span for commit in line if (span := span_of(commit)) is not None]):
            if each.topic != topic or each.round is not None or each.remade:
                continue
            if rounds and kind_of(rounds[-1].mode) == kind_of(each.mode) == "append":
                rounds[-1] = replace(rounds[-1], start=each.start | rounds[-1].start, to=each.to)
            else:
                rounds.append(each)
        before = [each for each in rounds if all(each.start.get(p, 0) <= o for p, o in places.items())]
        since = rounds[len(before) - 1 :] if before else rounds
        return cls(since[0].start if before else None, tuple(each.to for each in since))
