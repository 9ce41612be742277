"""Tables whose rounds delete rows are rewritten by their own job, between two rounds, where one is running (ADR 31).

A round deletes by position: where somebody rewrites a file meanwhile the round must be done again, and who rewrites what rounds
delete from all the time never ends. So the maintenance asks by a property of the table, and the job does a bounded part of the
work once a round is over. Where nobody answers no job is running, and the maintenance does it itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from py4j.protocol import Py4JNetworkError

from calve.config.maintenance import TURN_KINDS, Kind
from calve.errors import Fatal
from calve.log import event
from calve.table.summary import TURN
from glue_jobs.iceberg.catalog import Table
from glue_jobs.maintenance.tasks import Work
from glue_jobs.process.java import problem
from glue_jobs.table.open_table import OpenTable

ANSWER_S = 90.0
"""A job looks for requests twice a minute; one whose round takes longer than this loses it against the rewriting, once."""
POLL_S = 2.0


def asked(table: Table, kind: Kind, wait: Callable[[float], bool]) -> bool:
    """Ask the job for one turn of a kind of work, and wait until it is over; False where nobody answers, or `wait` says to stop.

    Raises:
        Retryable: the catalog does not answer.
    """
    table.set_properties({TURN: kind})
    until = time.monotonic() + ANSWER_S
    while time.monotonic() < until and not wait(POLL_S):
        table.refresh()
        if TURN not in table.properties:
            return True
    table.set_properties({}, remove=[TURN])
    table.refresh()
    return False


def take(table: OpenTable, spare_s: float) -> float:
    """Do the work that is asked for, if any is, as far as a turn goes; how long it took. It never fails the table.

    spare_s: until the next round; a group of files that is begun is finished.
    """
    kind = table.main.properties.get(TURN)
    if kind is None:
        return 0.0
    began = time.monotonic()
    try:
        if kind in TURN_KINDS:
            work = Work(table.services.lake, table.config, table.main, table.dead_letters.table)
            work.turn(kind, lambda: time.monotonic() - began > spare_s)
        table.main.set_properties({}, remove=[TURN])
        table.main.refresh()
    except (Fatal, Py4JNetworkError, ConnectionError):
        raise
    except Exception as error:  # noqa: BLE001 a table is kept, whatever becomes of its maintenance
        who = {"table": str(table.name), "topic": table.config.topic}
        event("maintenance.failed", **who, kind=kind, why=problem(error))
    return time.monotonic() - began
