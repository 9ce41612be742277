"""How a model's writer publishes rows and a position: what `glue_jobs.operations.publishing` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calve.errors import LostRace
from calve.table.position import Position
from calve.table.protocol import contains_round, nearest_position
from tests.unit.calve.protocol_model.lake import Row
from tests.unit.calve.protocol_model.world import Ambiguous, Steps, World, commit


def publish(
    world: World, base: Position, round_id: str, summary: Mapping[str, str], rows: Sequence[Row]
) -> Steps:
    """Commit the same rows until it is known whether they are in."""
    main, at = world.main, base
    while True:
        try:
            yield from commit(
                world,
                main,
                lambda head: main.snapshot(head, summary, head.head().rows + tuple(rows), round_id),
                lambda head, at=at: world.rules.may_publish(head.ancestors(), at),  # type: ignore[misc]
            )
            break
        except (Ambiguous, LostRace) as error:
            yield "in doubt"
            if world.rules.same_round_when_in_doubt:
                if contains_round(main.metadata.ancestors(), round_id):
                    break
            else:
                at = nearest_position(main.metadata.ancestors()) or at
            if isinstance(error, LostRace):
                raise
    yield f"published {round_id}"
