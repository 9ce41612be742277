"""What a model's writer does between two rounds, as `glue_jobs.maintenance.between_rounds` does."""

from __future__ import annotations

from calve.errors import LostRace
from calve.requests.redrive import is_level
from calve.table.position import NO_DEAD_LETTERS, Position
from calve.table.protocol import nearest_position, position_commit
from calve.table.summary import POSITION_TAG, carried_position
from glue_jobs.maintenance.between_rounds import down_to_a_position, needed, needed_of_dead_letters
from tests.unit.calve.protocol_model.lake import Metadata
from tests.unit.calve.protocol_model.world import Ambiguous, Steps, World, commit

KEPT = (3, 5)
"""So many snapshots stay at least: others would have to commit as many upon one that main is rolled back to as it expires."""


def upkeep(world: World, position: Position) -> Steps:
    """Merge, and let snapshots expire; what is refused, or whose answer is lost, is left to another time."""
    try:
        yield from _merge(world, position)
        yield from _tag(world)
        yield from _expire(world)
    except (Ambiguous, LostRace):
        yield "postponed"


def _merge(world: World, position: Position) -> Steps:
    main = world.main
    stood = position_commit(main.metadata.ancestors())
    if stood is None or not position.offsets or not world.rules.may_merge([stood], position):
        return
    summary = carried_position(stood.summary)
    yield "rewritten"
    yield from commit(
        world,
        main,
        lambda head: main.snapshot(head, summary, head.head().rows),
        lambda head: world.rules.may_merge(head.ancestors(), position),
    )
    yield "merged"


def _tag(world: World) -> Steps:
    def move(head: Metadata) -> Metadata | None:
        found = nearest_position(head.ancestors())
        return None if found is None else head.with_ref(POSITION_TAG, found.snapshot)

    return commit(world, world.main, move)


def _expire(world: World) -> Steps:
    line = world.main.metadata.ancestors()
    stood = nearest_position(line)
    kept = world.rules.expiry_keeps(line, min(len(line), max(world.rng.randint(*KEPT), needed(line))))
    boundary = line[kept - 1].id
    yield "chosen"
    yield from commit(world, world.main, lambda head: head.expired(kept, boundary))
    if stood is None or not is_level(stood, world.letters.metadata.ancestors()):
        return
    oldest = nearest_position(line[kept - 1 :])
    named = oldest.dead_letters.round if oldest and oldest.dead_letters else NO_DEAD_LETTERS
    dead = world.letters.metadata.ancestors()
    left = down_to_a_position(
        dead, min(len(dead), max(world.rng.randint(*KEPT), needed_of_dead_letters(dead, named)))
    )
    last = dead[left - 1].id
    yield from commit(world, world.letters, lambda head: head.expired(left, last))
    yield "expired"
