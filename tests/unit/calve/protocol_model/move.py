"""A model's writer that goes on with a copy of its topic because a person has asked: `glue_jobs.operations.leaving`."""

from __future__ import annotations

from dataclasses import replace

from calve.table.position import Ledger, Position
from calve.table.summary import MOVE, encode
from tests.unit.calve.protocol_model.lake import Metadata, WantedMove
from tests.unit.calve.protocol_model.publishing import publish
from tests.unit.calve.protocol_model.world import Steps, World, commit, or_again


def move(world: World, base: Position, writer: str, round_id: str, wanted: WantedMove) -> Steps:
    """Publish the position in the copy unless main has it already, then answer."""
    done = any(each.summary.get(MOVE) == str(wanted.id) for each in world.main.metadata.ancestors())
    topic = world.topic.state()
    fits = (base.round, base.newest, topic.key) == (wanted.round, wanted.former, wanted.copy)
    if fits and not done and topic.key not in base.offsets:
        offsets = dict(wanted.offsets)
        position = replace(
            base,
            offsets=base.with_offsets(topic.key, offsets),
            round=round_id,
            writer=writer,
            snapshot=None,
            moved=(*base.moved, wanted.former),
        )
        world.lost[round_id] = {(topic.key, partition): (0, offset) for partition, offset in offsets.items()}
        start = {topic.key: offsets}
        summary = encode(position=position, topic=topic.key, start=start, ledger=Ledger(), metrics={})
        yield from publish(world, base, round_id, summary | {MOVE: str(wanted.id)}, [])
    yield "moved" if fits else "move refused"
    yield from or_again(commit(world, world.main, lambda known: _answered(known, wanted)))


def _answered(known: Metadata, wanted: WantedMove) -> Metadata | None:
    if known.wanted != wanted:
        return None
    return replace(known, wanted=None, answered=(*known.answered, wanted.id))
