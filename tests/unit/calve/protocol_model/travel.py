"""A model's writer that goes back because a person has asked: what `glue_jobs.operations.time_travel` does, with production's own
decisions.
"""

from __future__ import annotations

from dataclasses import replace

from calve.errors import CalveError
from calve.requests.time_travel import journey, require_readable
from calve.table.protocol import begin
from tests.unit.calve.protocol_model.lake import MAIN, Metadata, Wanted
from tests.unit.calve.protocol_model.world import Steps, World, commit, or_again


def travel(world: World, wanted: Wanted) -> Steps:
    """Move main and answer, by one swap of the metadata that the decision was made on."""
    known = world.main.metadata
    if known.wanted != wanted:
        return
    if not world.rules.back_in_one_swap:
        yield from or_again(commit(world, world.main, lambda base: _answered(world, base, wanted)))
        return
    new = _answered(world, known, wanted)
    yield f"back to {wanted.snapshot}" if new.refs != known.refs else "going back refused"
    yield f"main: {world.main.request(known.version, new, world.fate())}"


def _answered(world: World, known: Metadata, wanted: Wanted) -> Metadata:
    topic = world.topic.state()
    try:
        way = journey(known.ancestors(), wanted.snapshot)
        start = begin(way.position, topic, first={}, on_data_loss="suspend")
        require_readable(way, topic.key, start)
        moved = known.with_ref(MAIN, way.to.id)
    except CalveError:
        moved = known
    return replace(moved, wanted=None, answered=(*known.answered, wanted.id))
