"""What all writers of a schedule share: the topic, the two tables, the rules they decide by, and how a commit goes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from calve.errors import LostRace, Suspended
from calve.table.dead_letters import Recovery, WaitingBranch, may_release, was_rolled_back
from calve.table.position import Ledger, Offsets, Position, TopicKey
from calve.table.protocol import Commit, TopicState, locate, may_publish, recheck
from calve.table.summary import encode
from glue_jobs.maintenance.between_rounds import down_to_a_position
from tests.unit.calve.protocol_model.lake import Metadata, Table, Topic

Steps = Iterator[str]
"""What a writer does, step by step: at every `yield` it may be overtaken, sleep for long, or die."""


class Ambiguous(Exception):
    """The commit may or may not have been applied, or may still be."""


class Again(Exception):
    """The round is given up; the same writer begins another."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The decisions of a writer. The defaults are production's; a broken variant changes one."""

    ancestors: Callable[[Metadata], Sequence[Commit]] = Metadata.ancestors
    locate: Callable[..., Position] = locate
    may_publish: Callable[[Sequence[Commit], Position], bool] = may_publish
    may_merge: Callable[[Sequence[Commit], Position], bool] = may_publish
    expiry_keeps: Callable[[Sequence[Commit], int], int] = down_to_a_position
    may_release: Callable[[Position, Sequence[Commit]], bool] = may_release
    was_rolled_back: Callable[[Position, Position | None], bool] = was_rolled_back
    drop: Callable[[Recovery, Sequence[WaitingBranch]], Sequence[WaitingBranch]] = lambda plan, _: plan.drop
    recheck: Callable[[TopicState, TopicState, Offsets], None] = recheck
    main_first: bool = True
    letters_read_first: bool = True
    cleanup_by_round: bool = True
    same_round_when_in_doubt: bool = True
    marks_withdrawn: bool = True
    redrive_named: bool = True
    back_in_one_swap: bool = True


PRODUCTION = Rules()


@dataclass
class World:
    """`lost`: by round, the ranges that were gone before they could be read. `marked`: by redrive, the records it brings back.

    `copies`: by incarnation, the one that it is a copy of, and how much greater its offsets are. `unreliable`: share of requests
    that go wrong.
    """

    rng: random.Random
    topic: Topic
    main: Table
    letters: Table
    rules: Rules = PRODUCTION
    on_data_loss: Literal["suspend", "continue"] = "suspend"
    unreliable: float = 0.0
    schema_registered: bool = False
    redrive_wanted: bool = False
    lost: dict[str, dict[tuple[TopicKey, int], tuple[int, int]]] = field(default_factory=dict)
    marked: dict[str, set[tuple[TopicKey, int, int]]] = field(default_factory=dict)
    copies: dict[TopicKey, tuple[TopicKey, Offsets]] = field(default_factory=dict)
    suspended: list[Suspended] = field(default_factory=list)
    made: int = 0

    def new_id(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made}"

    def fate(self) -> str:
        if self.rng.random() >= self.unreliable:
            return "ok"
        return self.rng.choice(("lost", "late", "answer lost", "answer lost", "told conflict"))


def commit(
    world: World,
    table: Table,
    change: Callable[[Metadata], Metadata | None],
    accept: Callable[[Metadata], bool] = lambda _: True,
) -> Steps:
    """Iceberg's commit: refresh, validate, swap; again on a conflict. `change` gives None where nothing is to do.

    Raises:
        LostRace: `accept` refused.
        Ambiguous: the answer was lost.
    """
    while True:
        base = table.metadata
        if not accept(base):
            raise LostRace(table.name)
        new = change(base)
        if new is None:
            return
        yield f"{table.name}: validated"
        answer = table.request(base.version, new, world.fate())
        yield f"{table.name}: {answer}"
        if answer == "ok":
            return
        if answer == "unknown":
            raise Ambiguous


def or_again(steps: Steps) -> Steps:
    """Give the round up where a commit is refused or its fate unknown: the next round looks at what there is."""
    try:
        yield from steps
    except (Ambiguous, LostRace):
        raise Again from None


def stamp(main: Position, round_id: str) -> dict[str, str]:
    """What a commit without a ledger says: which round it is about, and where main stood."""
    position = replace(main, round=round_id)
    return encode(position=position, topic=TopicKey("", ""), start={}, ledger=Ledger(), metrics={})
