"""The decisions that keep a dead-letter table level with its table: main commits first, its rejects follow (ADR 5).

The published dead letters are a chain: each commit on the dead-letter main names its round, and main's position names the
newest round and the one before it. Like `calve.table.protocol`, all of it is run by the model in
`tests/unit/calve/protocol_model`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from calve.errors import Suspended
from calve.table.position import NO_LETTERS, Position
from calve.table.protocol import Commit
from calve.table.summary import WITHDRAWN, round_of, withdrawn_of


@dataclass(frozen=True, slots=True)
class WaitingBranch:
    """A branch of the dead-letter table: the rejects of `round`, staged when main stood at the round `base`."""

    name: str
    round: str
    base: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """What must be done to the dead-letter table before the next round of the table."""

    publish: WaitingBranch | None = None
    drop: tuple[WaitingBranch, ...] = ()


def recover_dead_letters(
    main: Position, *, published: bool, branches: Sequence[WaitingBranch], stored: int | None = None
) -> Recovery:
    """Bring the dead-letter table level with main.

    `published`: the newest dead letters are those that main names (`dead_letters_round`). `stored`: the number of dead letters of
    that round, looked up in the table where its history does not say and no branch holds the round.
    A branch is dropped once main has left the round it was staged on: its round can never be published then. That holds
    only for branches that were seen BEFORE main was read: a newer one may belong to a round that began after it.

    Raises:
        Suspended: `dead_letters_lost`: main names rejects that are neither in the table nor on a branch.
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


def dead_letters_round(letters: Iterable[Commit]) -> str | None:
    """The round of the newest dead letters; `letters` runs from the head of the dead-letter main. None: expiry took it."""
    return next((found for each in letters if (found := round_of(each.summary)) is not None), None)


def _rounds_of(main: Position) -> tuple[str, ...]:
    named = main.dead_letters
    return (named.round, named.previous) if named else (NO_LETTERS,)


def was_rolled_back(main: Position, letters: Position | None) -> bool:
    """True where the newest dead letters are of a round that main does not stand for: it was rolled back past that round.

    Rounds are compared, not offsets: a writer that slept through the rollback may have moved main's offsets on since.
    `letters` must be the same before and after `main` is read, else a release in between looks like a rollback.
    """
    return letters is not None and letters.round not in _rounds_of(main)


@dataclass(frozen=True, slots=True)
class Leftover:
    """Dead letters that a rollback of main has left behind; without them the newest are those of `back_to`."""

    rounds: frozenset[str]
    back_to: str

    @property
    def summary(self) -> dict[str, str]:
        """What the commit that deletes them says, besides `calve.round` = `back_to`: their older commits no longer count."""
        return {WITHDRAWN: json.dumps(sorted(self.rounds))}


def leftover_letters(main: Position, letters: Iterable[Commit]) -> Leftover | None:
    """The rounds above the newest one that main stands for; None where the history does not hold that one (any more)."""
    above, found = _above(main, letters)
    return Leftover(above, found) if found in _rounds_of(main) else None


def rounds_since(main: Position, letters: Iterable[Commit]) -> frozenset[str]:
    """The rounds that the history holds, where it no longer reaches back to one that main stands for: all came later."""
    above, found = _above(main, letters)
    return above if found is None else frozenset()


def _above(main: Position, letters: Iterable[Commit]) -> tuple[frozenset[str], str | None]:
    """The rounds above the newest one that main stands for, and that; or above the table's beginning; None: neither is there."""
    above: set[str] = set()
    withdrawn: set[str] = set()
    for commit in letters:
        found = round_of(commit.summary)
        if found is None or found in withdrawn:
            continue
        if found in (*_rounds_of(main), NO_LETTERS):
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
    """What `leftover_letters` cannot tell from the history, told from what the dead-letter table holds.

    `newest`: `dead_letters_round`. `beyond`: the rounds of dead letters that lie at or beyond main's position. `stored`: how many
    dead letters the table holds, by round. `since`: `rounds_since`; a writer that slept through the rollback may have moved
    main's offsets on beyond some of them.

    Raises:
        Suspended: the table lacks what it must hold, so it was itself rolled back or replaced (`dead_letters_lost`).
    """
    named = main.dead_letters
    back_to = NO_LETTERS
    if named:
        back_to = named.round if stored.get(named.round) == named.count else named.previous
    if (newest is not None and newest not in beyond) or (back_to != NO_LETTERS and not stored.get(back_to)):
        raise Suspended(
            "dead_letters_lost",
            f"the dead-letter table ends with round {newest or 'unknown'} and lacks those that the table names: {named}",
            fix="restore the dead-letter table (was it rolled back or replaced?)",
        )
    return Leftover(frozenset(beyond | since), back_to)


def may_release(main: Position, letters: Iterable[Commit]) -> bool:
    """The compare-and-swap of the dead-letter table: the round that main names follows the one that main named before.

    Refused where the round is in already, and where a rollback has left later rounds behind.
    """
    return main.dead_letters is not None and dead_letters_round(letters) == main.dead_letters.previous
