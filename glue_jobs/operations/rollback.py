"""Roll back to an earlier snapshot. One metadata commit moves main and answers the request, so it happens once (ADR 32).

The rest is as after any rollback: the dead letters are brought level, and the next round reads from that snapshot's
position.
"""

from __future__ import annotations

from calve.errors import Retryable
from calve.requests.requests import Entry, outdated
from calve.requests.rollback import Journey, Request, journey, require_readable
from calve.table.position import Position
from calve.table.protocol import begin
from calve.table.summary import TRAVEL
from glue_jobs.operations.operation import RAISED, Operation, now
from glue_jobs.process import faults
from glue_jobs.table.open_table import OpenTable


class Rollback(Operation[Request, tuple[Entry, int | None]]):
    """An answer has the snapshot that main goes back to; None: main stays."""

    kind = Request
    raised = (*RAISED, Retryable)

    def refused(self, request: Request | None, why: str) -> tuple[Entry, int | None]:
        if request is None:
            return Entry("unknown", now(), "rollback", "", problem=why), None
        return Entry(request.id, now(), request.what, _asked(request), request.by, problem=why), None

    def run(self, request: Request) -> tuple[Entry, int | None]:
        way = journey(tuple(self.table.main.ancestors()), request.snapshot)
        _require_readable(self.table, self.base, way)
        told = f"{_asked(request)}: {way.reread} offsets are read again"
        return Entry(request.id, now(), request.what, told, request.by), way.to.id

    def answer(self, answer: tuple[Entry, int | None]) -> None:
        table, main, (entry, snapshot) = self.table, self.table.main, answer
        removed = [TRAVEL, *outdated(main.properties)]
        if snapshot is None:
            main.set_properties(entry.property(), remove=removed)
            main.refresh()
        else:
            main.roll_back(snapshot, entry.property(), remove=removed)
        faults.point("rewind.completed", table.config.name)
        table.event(
            "rewind.completed", request=entry.id, what=entry.what, result=entry.told, problem=entry.problem
        )


def _asked(request: Request) -> str:
    return f"{request.what} to snapshot {request.snapshot}"


def _require_readable(opened: OpenTable, base: Position, way: Journey) -> None:
    if not base.offsets:
        return
    table, topic = opened.config, opened.services.cluster.state(opened.config.topic)
    first = {} if way.position.offsets else opened.services.cluster.first_offsets(topic, table.start)
    start = begin(way.position, topic, first=first, on_data_loss="suspend")
    require_readable(way, topic.key, start)
