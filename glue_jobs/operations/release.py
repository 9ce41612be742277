"""Give a table up. One commit writes the last position and removes the properties and tags of calve (ADR 72).

The position gets a new round, so a round of another job that is under way cannot be published any more. A job that opens the
table afterwards finds that it is not calve's.
"""

from __future__ import annotations

import uuid

from calve.errors import CalveError, Retryable, Suspended
from calve.requests.requests import Entry, Release, now, outdated
from calve.table.protocol import may_publish, position_commit
from calve.table.summary import POSITION_TAG, PREFIX, RELEASE, REQUESTS, ROUND, WRITER, carried_position
from glue_jobs.iceberg.staging import Ambiguous, leave
from glue_jobs.operations.operation import RAISED, Operation
from glue_jobs.process import faults


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
        stood = position_commit(main.ancestors())
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
                tags=[each for each in main.refs() if each == POSITION_TAG],
            )
        except Ambiguous as error:
            raise Retryable(error.message) from None
        faults.point("table.released", table.config.name)
        table.event("release.completed", snapshot_id=snapshot, **facts)
        raise Suspended(
            "not_ours",
            f"table {main.name} was released by {answer.by}",
            fix="remove its entry from calve.yaml",
        )
