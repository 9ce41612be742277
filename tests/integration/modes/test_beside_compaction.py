"""Tables by key beside a compaction and an expiry by others that never pause: no round is lost more than once in a row."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from py4j.protocol import Py4JJavaError

from glue_jobs.rounds.loop import TableLoop
from tests.integration.support.crashing import TOTALS, UPSERTS, Scene
from tests.integration.support.engine import Engine, each_time
from tests.integration.support.running import run

MINUTES = 30
RETAINED = 10
"""Snapshots that the expiry leaves."""


@pytest.mark.full
def test_no_round_is_lost_twice_in_a_row(engine: Engine) -> None:
    scenes = [Scene(engine, mode=mode) for mode in (UPSERTS, TOTALS)]
    for scene in scenes:
        scene.produce()
        scene.work()
    tries, most = Counter[str](), Counter[str]()
    rounds, redone, services = Counter[str](), Counter[str](), Counter[str]()

    def begun(table: str) -> None:
        tries[table] += 1
        most[table] = max(most[table], tries[table])

    def committed(table: str) -> None:
        rounds[table] += 1
        tries[table] = 0

    def others() -> None:
        for scene in scenes:
            with losing_races():
                engine.compact(scene.topic)
                services[scene.topic] += 1
            with losing_races():
                engine.expire_history(scene.topic, retain=RETAINED)

    with (
        each_time("stage.begin", begun),
        each_time("publish.committed", committed),
        each_time("publish.redone", lambda table: redone.update([table])),
        without_pause(others),
        jobs(scenes),
    ):
        until = time.monotonic() + MINUTES * 60
        while time.monotonic() < until:
            for scene in scenes:
                scene.produce()
            time.sleep(1)
    found = [(most[name], redone[name], rounds[name], services[name]) for name in rounds]
    for scene in scenes:
        scene.finish()
    assert all(tried <= 2 and again > MINUTES / 2 for tried, again, *_ in found), found


@contextmanager
def losing_races() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        if not any(each in str(error) for each in ("CommitFailed", "ValidationException")):
            raise


@contextmanager
def without_pause(work: Callable[[], None]) -> Iterator[None]:
    done, failed = threading.Event(), list[Exception]()

    def run() -> None:
        try:
            while not done.is_set():
                work()
        except Exception as error:  # noqa: BLE001 raised by the test below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert failed == []


@contextmanager
def jobs(scenes: list[Scene]) -> Iterator[None]:
    """A job that keeps the tables of these topics."""
    stop = threading.Event()
    loops = [TableLoop(scene.opener(freshness_s=2.0), stop, drain=False) for scene in scenes]
    threads = [threading.Thread(target=run, args=(each,)) for each in loops]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {each.state for each in loops} == {"running"}
