"""Sends announcements to the event bus, in its own thread: no round ever waits for EventBridge.

The queue is bounded. When it is full, it refuses an announcement, and the caller keeps it: commits are in their table.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from calve.errors import Retryable
from calve.log import event
from calve.outputs.announcement import Announcement
from calve.rounds.scheduling import backoff_s

MAX_ENTRIES = 10
MAX_BYTES = 200_000
"""The limit of one request. EventBridge takes 256 KB."""


def send(region: str, batch: Sequence[Announcement]) -> list[Announcement]:
    """Send what fits into one request (`first_batch`) to EventBridge's default bus; returns the announcements not taken.

    Raises Retryable: as far as is known, none was taken.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = _client(region).put_events(Entries=[each.entry() for each in batch])
    except ClientError as error:
        raise Retryable(f"EventBridge in {region}: {error.response['Error']['Code']}") from None
    except BotoCoreError as error:
        raise Retryable(f"EventBridge in {region}: {type(error).__name__}") from None
    if not answer["FailedEntryCount"]:
        return []
    return [each for each, said in zip(batch, answer["Entries"], strict=True) if said.get("ErrorCode")]


@cache
def _client(region: str) -> Any:
    """boto3 finds credentials, endpoint and proxy as every AWS client does."""
    import boto3
    from botocore.config import Config

    retries = {"mode": "standard", "total_max_attempts": 2}
    limits = Config(connect_timeout=5, read_timeout=10, retries=retries)
    return boto3.client("events", region_name=region, config=limits)


def first_batch(waiting: Iterable[Announcement]) -> list[Announcement]:
    """The first waiting announcements, as many as one request takes, at least one."""
    found: list[Announcement] = []
    size = 0
    for each in waiting:
        size += sum(len(text.encode()) for text in each.entry().values())
        if found and (size > MAX_BYTES or len(found) == MAX_ENTRIES):
            break
        found.append(each)
    return found


MOST_WAITING = 1_000


@dataclass(slots=True)
class Outbox:
    """Sends in order, each announcement at least once while the process lives. `job`: the source of the events.

    send: as `send`, for a region.
    """

    job: str
    send: Callable[[Sequence[Announcement]], list[Announcement]]
    _waiting: deque[tuple[Announcement, Callable[[], None]]] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ends_at: float | None = None
    """Set once the job has ended: the time limit for sending."""
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="announcements", daemon=True)
        self._thread.start()

    def put(self, announcement: Announcement, sent: Callable[[], None] = lambda: None) -> bool:
        """Queue an announcement. `sent` is called once the bus has it. False if the queue is full."""
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                return False
            self._waiting.append((announcement, sent))
            self._changed.notify()
        return True

    def close(self, within_s: float) -> None:
        """Send the queue within this time. A later job that opens the tables announces the rest."""
        with self._changed:
            self._ends_at = time.monotonic() + within_s
            self._changed.notify()
        self._thread.join(within_s)
        if left := len(self._waiting):
            event("announcement.pending", job=self.job, waiting=left)

    def _run(self) -> None:
        failures = 0
        while batch := self._next():
            try:
                refused = self.send(batch)
                why = f"{len(refused)} of {len(batch)} were not taken" if refused else None
            except Retryable as error:
                refused, why = batch, error.message
            except Exception as error:  # noqa: BLE001 the thread must not end while others put
                refused, why = batch, type(error).__name__
            self._taken(len(batch), refused)
            failures = failures + 1 if why else 0
            if why and not self._waited(failures, why):
                return

    def _next(self) -> list[Announcement]:
        """The next batch, once there is one; empty if the job has ended and everything is sent."""
        with self._changed:
            while not self._waiting and self._ends_at is None:
                self._changed.wait()
            return first_batch(announcement for announcement, _ in self._waiting)

    def _taken(self, tried: int, refused: Sequence[Announcement]) -> None:
        """Keep refused announcements first, so that none counts as sent before an earlier one."""
        with self._changed:
            batch = [self._waiting.popleft() for _ in range(tried)]
            again = {id(each) for each in refused}
            self._waiting.extendleft(each for each in reversed(batch) if id(each[0]) in again)
        if not refused:
            for _, sent in batch:
                sent()

    def _waited(self, failures: int, why: str) -> bool:
        """Wait before the next try; False if the job has ended and its time limit is over."""
        wait_s = backoff_s(failures)
        facts = {"why": why, "waiting": len(self._waiting), "failures": failures, "wait_s": wait_s}
        event("announcement.failed", job=self.job, **facts)
        with self._changed:
            if self._ends_at is None:
                self._changed.wait_for(lambda: self._ends_at is not None, wait_s)
            else:
                self._changed.wait(min(wait_s, self._ends_at - time.monotonic()))
            return self._ends_at is None or time.monotonic() < self._ends_at
