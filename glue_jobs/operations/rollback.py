"""Roll back to an earlier snapshot. One metadata commit moves main and answers the request, so it happens once (ADR 32).

The rest is as after any rollback: the dead letters are brought level, and the next round reads from that snapshot's
position.
"""

from __future__ import annotations

from typing import ClassVar

from calve.errors import Retryable
from calve.log import event
from calve.requests.requests import Entry, outdated
from calve.requests.rollback import Journey, Request, journey, require_readable
from calve.table.position import Position
from calve.table.protocol import begin
from calve.table.summary import TRAVEL
from glue_jobs.operations.operation import RAISED, now
from glue_jobs.process import faults
from glue_jobs.table.open_table import OpenTable


class Rollback:
    """As `Operation`. An answer has the snapshot that main goes back to; None: main stays."""

    raised: ClassVar[tuple[type[Exception], ...]] = (*RAISED, Retryable)

    def __init__(self, opened: OpenTable, base: Position) -> None:
        self.table = self.opened = opened
        self.base = base
        self.changed = False

    def pending(self) -> Request | None:
        return Request.pending(self.opened.main.properties)

    def refuse(self, request: Request) -> str | None:
        return None

    def refused(self, request: Request | None, why: str) -> tuple[Entry, int | None]:
        if request is None:
            return Entry("unknown", now(), "rollback", "", problem=why), None
        return Entry(request.id, now(), request.what, _asked(request), request.by, problem=why), None

    def run(self, request: Request) -> tuple[Entry, int | None]:
        way = journey(tuple(self.opened.main.ancestors()), request.snapshot)
        _require_readable(self.opened, self.base, way)
        told = f"{_asked(request)}: {way.reread} offsets are read again"
        return Entry(request.id, now(), request.what, told, request.by), way.to.id

    def answer(self, answer: tuple[Entry, int | None]) -> None:
        opened, main, (entry, snapshot) = self.opened, self.opened.main, answer
        removed = [TRAVEL, *outdated(main.properties)]
        if snapshot is None:
            main.set_properties(entry.property(), remove=removed)
            main.refresh()
        else:
            main.roll_back(snapshot, entry.property(), remove=removed)
        faults.point("travel.answered", opened.config.name)
        event(
            "travel.answered",
            table=str(opened.name),
            topic=opened.config.topic,
            request=entry.id,
            what=entry.what,
            told=entry.told,
            problem=entry.problem,
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
