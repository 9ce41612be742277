"""The dead letters of a model's writer: what `glue_jobs.dead_letters.table` does, with production's own decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from calve.errors import LostRace
from calve.table.dead_letters import (
    Leftover,
    WaitingBranch,
    dead_letters_round,
    leftover_by_offsets,
    leftover_dead_letters,
    recover_dead_letters,
    rounds_since,
)
from calve.table.position import Position
from calve.table.protocol import nearest_position
from tests.unit.calve.protocol_model.lake import MAIN, Metadata, Row, Snapshot
from tests.unit.calve.protocol_model.world import Again, Ambiguous, Steps, World, commit, or_again, stamp


def hold(world: World, round_id: str, base: Position, rejects: Sequence[Row], made: list[int]) -> Steps:
    """Commit rejects to a branch of their own; `made` gets the snapshot's id."""
    summary = {"calve.round": round_id, "calve.base": base.round}

    def stage(metadata: Metadata) -> Metadata:
        rows = metadata.head().rows + tuple(rejects)
        new = world.letters.snapshot(metadata, summary, rows, ref=f"calve_{round_id}")
        made.append(new.refs[f"calve_{round_id}"])
        return new

    return or_again(commit(world, world.letters, stage))


def recover(world: World, main: Position, seen: Metadata, now: Metadata) -> Steps:
    """Bring the dead letters level with main; `seen` was read before main, `now` after it."""
    if dead_letters_round(seen.ancestors()) != dead_letters_round(now.ancestors()):
        raise Again
    newest = nearest_position(now.ancestors())
    if newest is None or world.rules.was_rolled_back(main, newest):
        yield from _undo_rollback(world, main, now)
        raise Again  # main may have moved on meanwhile
    branches = [_branch(seen, name, at) for name, at in sorted(seen.refs.items()) if name != MAIN]
    known = list(branches)
    named = main.dead_letters
    if named and named.snapshot in now.snapshots:
        known.append(_branch(now, f"calve_{named.round}", named.snapshot))
    plan = recover_dead_letters(
        main, published=named is not None and newest.round == named.round, branches=known
    )
    yield "letters planned"
    if plan.publish:
        yield from release(world, main)
    for branch in world.rules.drop(plan, branches):
        yield from or_again(commit(world, world.letters, _dropping(branch.name)))


def release(world: World, main: Position, rejects: Sequence[Row] | None = None) -> Steps:
    """Append the dead letters that main names, once, then drop their branch."""
    letters, named = world.letters, main.dead_letters
    assert named
    held = letters.metadata.snapshots.get(named.snapshot)
    if held is None and rejects is None:
        raise Again
    files = tuple(rejects or ()) if held is None else _added(held)
    summary = stamp(main, named.round)
    yield "files known"
    try:
        yield from commit(
            world,
            letters,
            lambda base: letters.snapshot(base, summary, _without(base, files) + files, named.round),
            lambda base: world.rules.may_release(main, base.ancestors()),
        )
    except (LostRace, Ambiguous):
        if dead_letters_round(letters.metadata.ancestors()) != named.round:
            raise Again from None
    yield f"released {named.round}"
    yield from or_again(commit(world, letters, _dropping(f"calve_{named.round}")))


def _without(base: Metadata, files: tuple[Row, ...]) -> tuple[Row, ...]:
    """What is there, but for letters that come again with a mark."""
    marked = {row.record for row in files if row.redriven}
    return tuple(row for row in base.head().rows if row.record not in marked)


def _undo_rollback(world: World, main: Position, now: Metadata) -> Steps:
    """Delete what a rolled-back main will read again, and say which dead letters are the newest now: one commit."""
    newest = dead_letters_round(now.ancestors())
    left = leftover_dead_letters(main, now.ancestors()) or _search(world, main, now, newest)
    yield f"left over: {sorted(left.rounds)}, back to {left.back_to}"
    by_round = world.rules.cleanup_by_round

    def delete(base: Metadata) -> Metadata:
        rows = base.head().rows
        kept = tuple(r for r in rows if not (r.round in left.rounds if by_round else beyond(main, r)))
        if world.rules.marks_withdrawn:
            kept = tuple(r._replace(redriven="") if r.redriven in left.rounds else r for r in kept)
        return world.letters.snapshot(base, stamp(main, left.back_to) | left.summary, kept)

    def unchanged(base: Metadata) -> bool:
        return not by_round or dead_letters_round(base.ancestors()) == newest

    yield from or_again(commit(world, world.letters, delete, unchanged))


def _search(world: World, main: Position, now: Metadata, newest: str | None) -> Leftover:
    """A redrive is in main as a whole or not at all, so one record of it tells."""
    held = {row.record for row in world.main.metadata.head().rows}
    rows = now.head().rows
    past = {row.round for row in rows if beyond(main, row)}
    marked = {row.redriven for row in rows} - {""}
    past |= marked - {row.redriven for row in rows if row.record in held}
    stored = Counter(row.round for row in rows) + Counter(row.redriven for row in rows)
    since = rounds_since(main, now.ancestors())
    return leftover_by_offsets(main, newest=newest, beyond=past, stored=stored, since=since)


def beyond(main: Position, row: Row) -> bool:
    return row.offset >= main.offsets.get(row.topic, {}).get(row.partition, 0)


def _branch(metadata: Metadata, name: str, snapshot: int) -> WaitingBranch:
    summary = metadata.snapshots[snapshot].summary
    return WaitingBranch(name, summary["calve.round"], summary["calve.base"])


def _added(snapshot: Snapshot) -> tuple[Row, ...]:
    """The rows that the commit itself added."""
    round_id = snapshot.summary["calve.round"]
    return tuple(row for row in snapshot.rows if round_id in (row.round, row.redriven))


def _dropping(branch: str) -> Callable[[Metadata], Metadata | None]:
    return lambda base: base.with_ref(branch, None) if branch in base.refs else None
