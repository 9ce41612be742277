"""Named points of a job at which a test may kill the process or interfere. In production they do nothing.

`CALVE_FAULT=publish.end:2` kills the process (SIGKILL) when any table passes the point for the second time.
`CALVE_FAULT=publish.end:2@trades,stage.end:1@users` stops each of these tables at its own point.
Once all of them have stopped, it kills the process: one process then crashes at many points.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

from calve.errors import ConfigError

STEPS = (
    *("prepare", "recover", "switch", "requests", "plan"),
    *("stage", "reject", "audit", "publish", "release", "emit"),
)
"""The steps of a round, in order. Only `Round.run` calls them, and it passes a point before and after each."""

_INNER = {
    "table": "bare created evolved released adopted learnt",
    "stage": "discarded",
    "position": "anchored",
    "dead_letters": "rewritten deleted withdrawn created evolved",
    "reject": "discarded restaged staged",
    "switch": "staged marked held committed",
    "redrive": "staged marked held committed completed",
    "forget": "noted digested staged committed fenced tagged expired swept exported completed cleared",
    "rewind": "completed",
    "backfill": "staged committed completed",
    "move": "committed completed",
    "layout": "changed",
    "publish": "redone committed",
    "release": "appended",
    "emit": "written noted",
    "branch": "dropped",
    "state": "written",
    "idle": "tagged noted",
    "maintenance": "settled",
    "merge": "staged committed",
    "expiry": "kept noted",
    "snapshots": "expired",
    "compact": "staged committed",
    "retention": "staged committed noted",
    "metadata": "committed",
    "orphans": "deleted noted",
}
INNER = tuple(f"{subject}.{effect}" for subject, effects in _INNER.items() for effect in effects.split())
"""Points inside a step, or between rounds. Between any two effects without a common transaction there is a point."""

POINTS = tuple(f"{step}.{edge}" for step in STEPS for edge in ("begin", "end")) + INNER

handlers: dict[str, Callable[[str], None]] = {}
"""Point -> action, given the table's name. Filled by tests, and by `CALVE_FAULT`."""


def point(name: str, table: str) -> None:
    """Pass a point; `name` must be in `POINTS`."""
    handler = handlers.get(name)
    if handler is not None:
        handler(table)


@dataclass(slots=True)
class _Fault:
    """Reached when `table` (None: any) has passed `point` `left` times."""

    point: str
    left: int
    table: str | None


def arm(setting: str) -> None:
    """Install the faults that `CALVE_FAULT` names: `point[:N][@table]`, separated by commas.

    Raises ConfigError: there is no such point.
    """
    waiting: list[_Fault] = []
    for text in setting.split(","):
        place, _, table = text.partition("@")
        name, _, count = place.partition(":")
        if name not in POINTS:
            raise ConfigError(
                f"CALVE_FAULT: {name} is no fault point", fix=f"name one of {', '.join(POINTS)}"
            )
        waiting.append(_Fault(name, int(count or 1), table or None))
    lock = threading.Lock()

    def pass_by(name: str, table: str) -> None:
        with lock:
            met = next((f for f in waiting if f.point == name and f.table in (None, table)), None)
            if met is None:
                return
            met.left -= 1
            if met.left:
                return
            waiting.remove(met)
            if not waiting:
                os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()

    for fault in waiting:
        handlers[fault.point] = lambda table, name=fault.point: pass_by(name, table)  # type: ignore[misc]
