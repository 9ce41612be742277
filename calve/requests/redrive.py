"""A redrive: dead letters that can be rows by now enter their table, once, by a commit that reads no offsets (ADR 12).

A person asks for it by a property of the table; the job, its only writer, answers by another. Like `calve.table.protocol`, what
is decided here is run by the model in `tests/unit/calve/protocol_model`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar, Self

from calve.requests.requests import WaitingRequest
from calve.table.dead_letters import dead_letters_round
from calve.table.position import NO_LETTERS, DeadLetterRound, Ledger, Position
from calve.table.protocol import Commit
from calve.table.summary import REDRIVE, REDRIVE_RESULT, ledger_of, round_of

"""The summary entry by which a commit names the request that it is a part of."""


@dataclass(frozen=True, slots=True)
class Request(WaitingRequest):
    """Which open dead letters to decode again; None: whichever. `since` and `until` (exclusive): when they were rejected.

    All moments are ISO 8601 with a time zone.
    """

    NAME: ClassVar[str] = REDRIVE
    reason: str | None = None
    schema_id: int | None = None
    since: str | None = None
    until: str | None = None

    def to_json(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the letters that a request selected; `problem`: why nothing did."""

    id: str
    at: str
    selected: int = 0
    redriven: int = 0
    present: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    problem: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, properties: Mapping[str, str], request_id: str) -> Self | None:
        """The answer to a request; None as long as there is none."""
        text = properties.get(REDRIVE_RESULT)
        found = cls(**json.loads(text)) if text else None
        return found if found and found.id == request_id else None


def is_level(main: Position, letters: Iterable[Commit]) -> bool:
    """True where the dead-letter table says exactly what main stands for; only then may letters be selected from it."""
    return dead_letters_round(letters) == (main.dead_letters.round if main.dead_letters else NO_LETTERS)


def position_after(base: Position, *, round_id: str, writer: str, held: DeadLetterRound) -> Position:
    """The position after a redrive: no offset moves, and main names the letters that came back."""
    previous = base.dead_letters.round if base.dead_letters else NO_LETTERS
    return replace(
        base,
        round=round_id,
        writer=writer,
        snapshot=None,
        dead_letters=replace(held, previous=previous, redriven=True),
        redrives=base.redrives + 1,
    )


def done_before(ancestors: Iterable[Commit], request_id: str) -> Ledger:
    """What commits of the same request have done already: a job may die between them, or before it answers."""
    ledgers = {
        round_of(commit.summary): ledger_of(commit.summary)
        for commit in ancestors
        if commit.summary.get(REDRIVE) == request_id
    }.values()
    return Ledger(
        redriven=sum(each.redriven for each in ledgers), present=sum(each.present for each in ledgers)
    )
