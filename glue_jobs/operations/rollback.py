"""Roll back to an earlier snapshot. One metadata commit moves main and answers the request, so it happens once (ADR 32).

The rest is as after any rollback: the dead letters are brought level, and the next round reads from that snapshot's
position.
"""

from __future__ import annotations

from calve.errors import Retryable
from calve.requests.requests import Entry, now, outdated
from calve.requests.rollback import Request, journey, require_readable
from calve.table.protocol import begin
from calve.table.summary import TRAVEL
from glue_jobs.operations.operation import RAISED, Operation
from glue_jobs.process import faults


class Rollback(Operation[Request, Entry]):
    """snapshot: the one that main goes back to; None: main stays."""

    kind = Request
    raised = (*RAISED, Retryable)
    snapshot: int | None = None

    def refused(self, request: Request | None, why: str) -> Entry:
        if request is None:
            return Entry("unknown", now(), "rollback", "", problem=why)
        return Entry(request.id, now(), request.what, _asked(request), request.by, problem=why)

    def run(self, request: Request) -> Entry:
        config, cluster = self.table.config, self.table.services.cluster
        way = journey(tuple(self.table.main.ancestors()), request.snapshot)
        if self.base.offsets:
            topic = cluster.state(config.topic)
            first = {} if way.position.offsets else cluster.first_offsets(topic, config.start)
            require_readable(way, topic.key, begin(way.position, topic, first=first, on_data_loss="suspend"))
        told = f"{_asked(request)}: {way.reread} offsets are read again"
        self.snapshot = way.to.id
        return Entry(request.id, now(), request.what, told, request.by)

    def answer(self, answer: Entry) -> None:
        table, main = self.table, self.table.main
        removed = [TRAVEL, *outdated(main.properties)]
        if self.snapshot is None:
            main.set_properties(answer.property(), remove=removed)
            main.refresh()
        else:
            main.roll_back(self.snapshot, answer.property(), remove=removed)
        faults.point("rewind.completed", table.config.name)
        facts = {"request": answer.id, "what": answer.what, "result": answer.told, "problem": answer.problem}
        table.event("rewind.completed", **facts)


def _asked(request: Request) -> str:
    return f"{request.what} to snapshot {request.snapshot}"
