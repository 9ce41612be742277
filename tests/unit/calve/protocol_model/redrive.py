"""A redrive of a model's writer: what `glue_jobs.operations.redrive` does, with production's own decisions."""

from __future__ import annotations

from dataclasses import replace

from calve.requests.redrive import is_level, position_after
from calve.table.position import DeadLetterRound, Ledger, Position, TopicKey
from calve.table.summary import encode
from tests.unit.calve.protocol_model import letters
from tests.unit.calve.protocol_model.publishing import publish
from tests.unit.calve.protocol_model.world import Again, Steps, World


def redrive(world: World, base: Position, writer: str, round_id: str) -> Steps:
    """Bring back the open letters that can be rows by now: hold their marks, publish the rows, then the marks.

    Here nobody looks whether main has a record already: the protocol must do without.
    """
    yield "redrive begins"
    pinned = world.letters.metadata
    yield "letters pinned"
    if not is_level(base, pinned.ancestors()):
        raise Again
    open_ = [row for row in pinned.head().rows if not row.redriven]
    fit = [row for row in open_ if row.kind == "s" and world.schema_registered]
    rows = [row._replace(round=round_id) for row in fit]
    yield f"selected {len(open_)}, fit {len(fit)}"
    if not fit:
        return
    marked = [row._replace(redriven=round_id) for row in fit]
    world.marked[round_id] = {row.record for row in marked}
    made: list[int] = []
    yield from letters.hold(world, round_id, base, marked, made)
    yield f"marks held {round_id}"
    ledger = Ledger(
        selected=len(open_),
        redriven=len(rows),
        refused={"bad": len(open_) - len(fit)},
        rows_appended=len(rows),
    )
    assert ledger.imbalance() is None
    position = position_after(
        base, round_id=round_id, writer=writer, held=DeadLetterRound(round_id, made[-1], len(marked))
    )
    named = position if world.rules.redrive_named else _unnamed(position, base)
    summary = encode(position=named, topic=TopicKey("c", "t"), start={}, ledger=ledger, metrics={})
    steps = [publish(world, base, round_id, summary, rows), letters.release(world, position, marked)]
    for each in steps if world.rules.main_first else reversed(steps):
        yield from each
    yield f"redriven {round_id}"


def _unnamed(position: Position, base: Position) -> Position:
    return replace(position, dead_letters=base.dead_letters)
