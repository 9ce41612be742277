"""A table leaves its cluster for a copy of the topic (`calve move`, ADR 73), or leaves calve (`calve release`, ADR 72).

Both are one commit without rows. `calve move` has found the offsets by the contents of both topics. The job checks only that
they still apply. A release gives the position a new round, so a round of another job that is under way cannot be published any
more. A job that opens the table afterwards finds that it is not calve's.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from calve.errors import CalveError, Retryable, Suspended
from calve.requests.requests import Entry, Move, Release, now, outdated
from calve.table.position import Ledger, TopicKey
from calve.table.protocol import may_publish, position_commit
from calve.table.summary import (
    MOVE,
    PREFIX,
    RELEASE,
    REQUESTS,
    ROUND,
    TAGS,
    WRITER,
    carried_position,
    encode,
)
from glue_jobs.iceberg.kept_digests import files_of
from glue_jobs.iceberg.purge import delete
from glue_jobs.iceberg.staging import NOTHING, Ambiguous, leave
from glue_jobs.operations.operation import RAISED, Operation
from glue_jobs.operations.publishing import publish_round
from glue_jobs.process import faults


class MoveTable(Operation[Move, Entry]):
    """The table goes on with a copy of its topic. Rows, dead letters and history stay as they are."""

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


class ReleaseTable(Operation[Release, Entry]):
    """The last operation of a table: nothing follows it in its round."""

    kind = Release
    raised = (*RAISED, Retryable)

    def refused(self, request: Release | None, why: str) -> Entry:
        if request is None:
            return Entry("unknown", now(), "release", "", problem=why)
        return Entry(request.id, now(), "release", "", request.by, problem=why)

    def run(self, request: Release) -> Entry:
        others = REQUESTS & self.table.main.properties.keys() - {RELEASE}
        if others:
            raise CalveError(
                f"the job has not ended what these properties ask for: {', '.join(sorted(others))}"
            )
        return Entry(request.id, now(), "release", "released", request.by)

    def answer(self, answer: Entry) -> None:
        """Raises Suspended: `not_ours`: the table is released. Raises LostRace: another job has published."""
        table, main = self.table, self.table.main
        facts = {"request": answer.id, "problem": answer.problem}
        if answer.problem is not None:
            main.set_properties(answer.property(), remove=[RELEASE, *outdated(main.properties)])
            main.refresh()
            table.event("release.completed", snapshot_id=None, **facts)
            return
        stood, digests = position_commit(main.ancestors()), [*files_of(main)]
        if stood is None:
            raise AssertionError("a table at a position has the commit of it")
        summary = carried_position(stood.summary)
        summary |= {ROUND: uuid.uuid4().hex, WRITER: table.services.writer}
        try:
            snapshot = leave(
                main,
                summary,
                lambda ancestors: may_publish(ancestors, self.base),
                properties=[each for each in main.properties if each.startswith(PREFIX)],
                tags=[each for each in main.refs() if each in TAGS],
            )
        except Ambiguous as error:
            raise Retryable(error.message) from None
        delete(main, digests)
        faults.point("table.released", table.config.name)
        table.event("release.completed", snapshot_id=snapshot, **facts)
        raise Suspended(
            "not_ours",
            f"table {main.name} was released by {answer.by}",
            fix="remove its entry from calve.yaml",
        )
