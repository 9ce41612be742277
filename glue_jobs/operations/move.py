"""Go on with a copy of the topic on another cluster: one empty commit adds its offsets and closes the former topic (ADR 73).

`calve move` has found the offsets by the contents of both topics. The job checks only that they still apply.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from calve.errors import CalveError, Retryable
from calve.requests.requests import Entry, Move, now, outdated
from calve.table.position import Ledger, TopicKey
from calve.table.summary import MOVE, encode
from glue_jobs.iceberg.staging import NOTHING
from glue_jobs.operations.operation import RAISED, Operation
from glue_jobs.operations.publishing import publish_round
from glue_jobs.process import faults


class MoveTable(Operation[Move, Entry]):
    """Rows, dead letters and history stay as they are."""

    kind = Move
    raised = (*RAISED, Retryable)

    def refused(self, request: Move | None, why: str) -> Entry:
        if request is None:
            return Entry("unknown", now(), "move", "", problem=why)
        return Entry(request.id, now(), "move", _told(request), request.by, problem=why)

    def answer(self, answer: Entry) -> None:
        table, main = self.table, self.table.main
        main.refresh()
        main.set_properties(answer.property(), remove=[MOVE, *outdated(main.properties)])
        faults.point("move.completed", table.config.name)
        main.refresh()
        table.event("move.completed", request=answer.id, result=answer.told, problem=answer.problem)

    def run(self, request: Move) -> Entry:
        if request.done_by(self.table.main.ancestors()) is None:
            self._publish(request)
        return Entry(request.id, now(), "move", _told(request), request.by)

    def _publish(self, request: Move) -> None:
        """Raises CalveError: the offsets do not apply. Raises LostRace, Retryable: as `publish_round`."""
        table, base = self.table, self.base
        topic, former = table.services.cluster.state(table.config.topic), TopicKey.parse(request.former)
        if str(topic.key) != request.copy:
            raise CalveError(f"the job reads topic {topic.key}, the request is for {request.copy}")
        if (base.round, base.newest) != (request.round, former):
            raise CalveError("the table has gone on since its offsets were compared")
        if topic.key in base.offsets:
            raise CalveError(
                "the table has rows of this topic: roll it back to a snapshot from before it left it"
            )
        topic.require(request.offsets)
        position = replace(
            base,
            offsets=base.with_offsets(topic.key, request.offsets),
            round=uuid.uuid4().hex,
            writer=table.services.writer,
            topic=topic.name,
            snapshot=None,
            moved=(*base.moved, former),
        )
        summary = encode(
            position=position,
            topic=topic.key,
            start={topic.key: request.offsets},
            ledger=Ledger(),
            metrics=table.carried(),
        )
        self.changed = True
        publish_round(table.main, NOTHING, summary | {MOVE: request.id}, base=base, round_id=position.round)
        faults.point("move.committed", table.config.name)


def _told(request: Move) -> str:
    return f"move from {request.former} to {request.copy}"
