"""A job that runs beside a test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from glue_jobs.rounds import loop
from glue_jobs.rounds.loop import TableLoop
from glue_jobs.table.opening import Opener


@contextmanager
def running(target: Opener, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableLoop]:
    """A loop that has read records, and looks for requests all the time; it is over behind the block."""
    monkeypatch.setattr(loop, "REQUEST_EVERY_S", 0.5)
    monkeypatch.setattr(loop, "POLL_S", 0.5)
    stop = threading.Event()
    job = TableLoop(target, stop, drain=False)
    thread = threading.Thread(target=job.run)
    thread.start()
    try:
        while len(job.read_to) == 0:
            assert not stop.wait(0.2)
        yield job
    finally:
        stop.set()
        thread.join(60)
