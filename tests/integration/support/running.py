"""A job that runs beside a test, and the embedded stack that commands find."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from calve.errors import Suspended
from cli import config as configuration
from glue_jobs.rounds import loop, waiting
from glue_jobs.rounds.loop import State, TableLoop
from glue_jobs.rounds.round import Round
from glue_jobs.rounds.waiting import Waiting
from glue_jobs.table.open_table import TableMemory
from glue_jobs.table.opening import Opener


def run(table: TableLoop) -> State:
    """Run the loop of one table in this thread until it is over, so that its exceptions arrive here."""
    alone, over = Waiting(table.stop), threading.Event()
    looks = threading.Thread(target=alone.look, args=(over,))
    looks.start()
    alone.begin()
    try:
        while table.work():
            alone.add(table)
            alone.end()
            if not alone.due():
                break
    finally:
        over.set()
        looks.join()
    return table.state


@contextmanager
def answering(target: Opener) -> Iterator[None]:
    """Rounds, one after the other, of a table that waits; it answers requests at once."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            with suppress(Suspended):
                Round(target, TableMemory()).run()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


@contextmanager
def running(target: Opener, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableLoop]:
    """A loop that has read records, and looks for requests all the time; it is over behind the block."""
    monkeypatch.setattr(waiting, "CATALOG_EVERY_S", 0.5)
    monkeypatch.setattr(loop, "POLL_S", 0.5)
    stop = threading.Event()
    job = TableLoop(target, stop, drain=False)
    thread = threading.Thread(target=run, args=(job,))
    thread.start()
    try:
        while len(job.read_to) == 0:
            assert not stop.wait(0.2)
        yield job
    finally:
        stop.set()
        thread.join(60)


def supplied(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The values that a calve.yaml may leave out: those of the embedded stack, with these changes."""
    defaults = configuration.stack_defaults
    monkeypatch.setattr(configuration, "stack_defaults", lambda stack: replace(defaults(stack), **changes))
