"""The decisions that keep a dead-letter table level with its table: main commits first, its rejects follow (ADR 5).

The published dead letters are a chain. Each commit on the dead-letter main names its round.
Main's position names the newest round and the one before it.
The model in `tests/unit/calve/protocol_model` runs all of this, as it does `calve.table.protocol`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from calve.errors import Suspended
from calve.table.position import NO_DEAD_LETTERS, Position
from calve.table.protocol import Commit
from calve.table.summary import WITHDRAWN, round_of, withdrawn_of


@dataclass(frozen=True, slots=True)
class WaitingBranch:
    """A branch of the dead-letter table: the rejects of `round`, staged when main was at the round `base`."""

    name: str
    round: str
    base: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """The actions on the dead-letter table before the next round."""

    publish: WaitingBranch | None = None
    drop: tuple[WaitingBranch, ...] = ()


def recover_dead_letters(
    main: Position, *, published: bool, branches: Sequence[WaitingBranch], stored: int | None = None
) -> Recovery:
    """Bring the dead-letter table level with main.

    `published`: the newest dead letters are those that main names (`dead_letters_round`).
    `stored`: the number of dead letters of that round in the table, if neither history nor a branch shows the round.
    A branch is dropped once main has left the round it was staged on: it can never be published then.
    That holds only for branches seen BEFORE main was read: a newer one may belong to a later round.

    Raises Suspended: `dead_letters_lost`: main names rejects that are neither in the table nor on a branch.
    """
    named = main.dead_letters
    waiting = next((b for b in branches if named and b.round == named.round), None)
    publish = None if published else waiting
    if named and not published and waiting is None and stored != named.count:
        raise Suspended(
            "dead_letters_lost",
            f"the table names {named.count} dead letters of round {named.round}, the dead-letter table holds {stored or 0}",
            fix="restore the dead-letter table (was it rolled back or dropped?), or roll the table back before that round",
        )
    stale = tuple(b for b in branches if b is not publish and b.base != main.round)
    return Recovery(publish, stale)


def dead_letters_round(dead_letters: Iterable[Commit]) -> str | None:
    """The round of the newest dead letters; `dead_letters` starts at the head of the dead-letter main. None: it has expired."""
    return next((found for each in dead_letters if (found := round_of(each.summary)) is not None), None)


def _rounds_of(main: Position) -> tuple[str, ...]:
    named = main.dead_letters
    return (named.round, named.previous) if named else (NO_DEAD_LETTERS,)


def was_rolled_back(main: Position, dead_letters: Position | None) -> bool:
    """True if main does not name the round of the newest dead letters: main was rolled back before that round.

    Rounds are compared, not offsets: a writer that missed the rollback may have moved main's offsets since.
    `dead_letters` must be the same before and after `main` is read. Otherwise a release in between looks like a rollback.
    """
    return dead_letters is not None and dead_letters.round not in _rounds_of(main)


@dataclass(frozen=True, slots=True)
class Leftover:
    """Dead letters that a rollback of main left behind. Without them, the newest are those of `back_to`."""

    rounds: frozenset[str]
    back_to: str

    @property
    def summary(self) -> dict[str, str]:
        """The summary of the commit that deletes them, besides `calve.round` = `back_to`: their older commits no longer count."""
        return {WITHDRAWN: json.dumps(sorted(self.rounds))}


def leftover_dead_letters(main: Position, dead_letters: Iterable[Commit]) -> Leftover | None:
    """The rounds above the newest one that main names; None if the history does not hold that one (any more)."""
    above, found = _above(main, dead_letters)
    return Leftover(above, found) if found in _rounds_of(main) else None


def rounds_since(main: Position, dead_letters: Iterable[Commit]) -> frozenset[str]:
    """All rounds of the history, if it does not reach back to one that main names: they are all later."""
    above, found = _above(main, dead_letters)
    return above if found is None else frozenset()


def _above(main: Position, dead_letters: Iterable[Commit]) -> tuple[frozenset[str], str | None]:
    """The rounds above the newest one that main names (or above the table's start), and that one; None if neither is there."""
    above: set[str] = set()
    withdrawn: set[str] = set()
    for commit in dead_letters:
        found = round_of(commit.summary)
        if found is None or found in withdrawn:
            continue
        if found in (*_rounds_of(main), NO_DEAD_LETTERS):
            return frozenset(above), found
        above.add(found)
        withdrawn.update(withdrawn_of(commit.summary))
    return frozenset(above), None


def leftover_by_offsets(
    main: Position,
    *,
    newest: str | None,
    beyond: AbstractSet[str],
    stored: Mapping[str, int],
    since: AbstractSet[str] = frozenset(),
) -> Leftover:
    """What `leftover_dead_letters` cannot find in the history, found in the rows of the dead-letter table.

    `newest`: `dead_letters_round`. `beyond`: the rounds of dead letters at or beyond main's position.
    `stored`: the number of dead letters in the table, by round.
    `since`: `rounds_since`; a writer that missed the rollback may have moved main's offsets past some of them.

    Raises Suspended: `dead_letters_lost`: the table lacks required rounds, so it was itself rolled back or replaced.
    """
    named = main.dead_letters
    back_to = NO_DEAD_LETTERS
    if named:
        back_to = named.round if stored.get(named.round) == named.count else named.previous
    if (newest is not None and newest not in beyond) or (
        back_to != NO_DEAD_LETTERS and not stored.get(back_to)
    ):
        raise Suspended(
            "dead_letters_lost",
            f"the dead-letter table ends with round {newest or 'unknown'} and lacks those that the table names: {named}",
            fix="restore the dead-letter table (was it rolled back or replaced?)",
        )
    return Leftover(frozenset(beyond | since), back_to)


def may_release(main: Position, dead_letters: Iterable[Commit]) -> bool:
    """The compare-and-swap of the dead-letter table: main's newest round must follow the newest one that is published."""
    return main.dead_letters is not None and dead_letters_round(dead_letters) == main.dead_letters.previous
