"""The heartbeat of a job: that it is alive, and which of its tables are not."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from calve.config.job import Job, Kafka, Lake
from calve.outputs.job_status import TableState
from calve.rounds.scheduling import lateness
from glue_jobs.rounds.loop import SILENT_S, TableLoop
from glue_jobs.rounds.reporting import MOST_NAMES, Reporter
from tests.integration.support.events import assert_as_documented


class Unwritten:
    """Where nothing can be read or written."""

    def read(self) -> None:
        return None

    def write(self, text: str) -> bool:
        return True


def loop(name: str, state: str, *, silent: bool) -> Any:
    opener = SimpleNamespace(name=SimpleNamespace(table=name), main=None, is_open=True)
    known = {"troubled": None, "made": False, "said": TableState(state), "failures": 0}
    return SimpleNamespace(opener=opener, state=state, silent=silent, **known)


def heartbeats(capsys: pytest.CaptureFixture[str], loops: list[Any] | None) -> list[dict[str, Any]]:
    job = Job("calve", "main", Kafka("b:1"), None, Lake("db", "s3://b"), ())
    reporter = Reporter(job, cast("Any", Unwritten()))
    reporter.loops = None if loops is None else cast("Any", SimpleNamespace(tables=loops))
    reporter._over.set()
    reporter._report()
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert_as_documented(found)
    return found


def test_a_job_says_how_many_tables_are_in_each_state_and_which_are_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hanging = [loop(f"t{n}", "running", silent=True) for n in range(MOST_NAMES + 1)]
    (told,) = heartbeats(capsys, [*hanging, loop("u", "suspended", silent=False)])
    assert told["states"] == {"running": MOST_NAMES + 1, "suspended": 1}
    assert told["silent"] == MOST_NAMES + 1
    assert len(told["names"]) == MOST_NAMES


def test_a_job_without_a_table_yet_is_alive_and_one_that_has_not_opened_any_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [each["silent"] for each in heartbeats(capsys, [])] == [0]
    assert heartbeats(capsys, None) == []


def test_a_table_is_not_silent_while_it_waits_for_its_next_round() -> None:
    """Waits without an event do not add up: a transaction that stays open is noticed."""
    config = SimpleNamespace(freshness_s=3600.0)
    stop = threading.Event()
    stop.set()
    waiting = TableLoop(cast("Any", SimpleNamespace(name="t", config=config, main=None)), stop, drain=False)
    for _ in range(3):
        waiting._wait(3420.0)
    waiting.heard_at -= 3420.0
    assert not waiting.silent
    waiting.heard_at -= SILENT_S
    assert waiting.silent


@pytest.mark.parametrize(
    ("p95_s", "target_s", "found"), [(120.0, 60.0, 2.0), (120.0, 1.0, 4.0), (0.0, 5.0, 0.0)]
)
def test_lateness_is_a_multiple_of_the_promise(p95_s: float, target_s: float, found: float) -> None:
    assert lateness(p95_s, target_s) == found
