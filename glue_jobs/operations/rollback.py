"""Roll back to an earlier snapshot. One metadata commit moves main and answers the request, so it happens once (ADR 32).

The rest is as after any rollback: the dead letters are brought level, and the next round reads from that snapshot's
position.
"""

from __future__ import annotations

from dataclasses import replace

from calve.errors import CalveError, Retryable
from calve.log import event
from calve.requests.requests import NOT_UNDERSTOOD, Entry, outdated
from calve.requests.rollback import Journey, Request, journey, require_readable
from calve.table.position import Position
from calve.table.protocol import begin
from calve.table.summary import TRAVEL
from glue_jobs.operations.redrive import now
from glue_jobs.process import faults
from glue_jobs.table.open_table import OpenTable


def handle_request(opened: OpenTable, base: Position) -> bool:
    """Handle the waiting request, if any; True if main has moved.

    `base`: the position; the dead letters are level with it.

    Raises:
        Retryable: a system does not answer, or another writer was faster. The next round answers.
    """
    try:
        request = Request.pending(opened.main.properties)
    except ValueError:
        _answer(opened, Entry("unknown", now(), "rollback", "", problem=NOT_UNDERSTOOD))
        return False
    if request is None:
        return False
    asked = f"{request.what} to snapshot {request.snapshot}"
    entry = Entry(request.id, now(), request.what, asked, request.by)
    try:
        way = journey(tuple(opened.main.ancestors()), request.snapshot)
        _require_readable(opened, base, way)
    except Retryable:
        raise
    except CalveError as error:
        _answer(opened, replace(entry, problem=error.message))
        return False
    told = f"{asked}: {way.reread} offsets are read again"
    _answer(opened, replace(entry, told=told), way.to.id)
    return True


def _require_readable(opened: OpenTable, base: Position, way: Journey) -> None:
    if not base.offsets:
        return
    table, topic = opened.config, opened.services.cluster.state(opened.config.topic)
    first = {} if way.position.offsets else opened.services.cluster.first_offsets(topic, table.start)
    start = begin(way.position, topic, first=first, on_data_loss="suspend")
    require_readable(way, topic.key, start)


def _answer(opened: OpenTable, entry: Entry, snapshot: int | None = None) -> None:
    main = opened.main
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
