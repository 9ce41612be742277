"""Announcements on their way to the event bus, sent by a thread of its own: no round ever waits for EventBridge.

What waits is bounded. An announcement that does not fit in is refused, and whoever has it keeps it: commits stand in their table.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from calve.errors import Retryable
from calve.log import event
from calve.outputs.announcement import Announcement
from calve.rounds.scheduling import backoff_s

MAX_ENTRIES = 10
MAX_BYTES = 200_000
"""Of a request. EventBridge takes 256 KB."""


class EventBus:
    """EventBridge's default bus, asked for nothing but to take announcements.

    boto3 finds credentials, endpoint and proxy as in every other client of AWS.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        self._client: Any = None

    def send(self, batch: Sequence[Announcement]) -> list[Announcement]:
        """Send what fits into one request (`first_batch`); returns those that were not taken.

        Raises:
            Retryable: none was, for all that is known.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._opened().put_events(Entries=[each.entry() for each in batch])
        except ClientError as error:
            raise Retryable(f"EventBridge in {self._region}: {error.response['Error']['Code']}") from None
        except BotoCoreError as error:
            raise Retryable(f"EventBridge in {self._region}: {type(error).__name__}") from None
        if not answer["FailedEntryCount"]:
            return []
        return [each for each, said in zip(batch, answer["Entries"], strict=True) if said.get("ErrorCode")]

    def _opened(self) -> Any:
        """Used by one thread alone."""
        import boto3
        from botocore.config import Config

        if self._client is None:
            limits = Config(
                connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2}
            )
            self._client = boto3.client("events", region_name=self._region, config=limits)
        return self._client


def first_batch(waiting: Iterable[Announcement]) -> list[Announcement]:
    """The first of what waits, as many as a request takes, and at least one."""
    found: list[Announcement] = []
    size = 0
    for each in waiting:
        size += _size(each)
        if found and (size > MAX_BYTES or len(found) == MAX_ENTRIES):
            break
        found.append(each)
    return found


def _size(announcement: Announcement) -> int:
    return sum(len(text.encode()) for text in announcement.entry().values())


MOST_WAITING = 1_000


class Bus(Protocol):
    """`EventBus`, or what stands in for it."""

    def send(self, batch: Sequence[Announcement]) -> list[Announcement]: ...


@dataclass(slots=True)
class Outbox:
    """Sends in the order of putting, each at least once as long as the process lives; `job`: whose events these are."""

    job: str
    bus: Bus
    _waiting: deque[tuple[Announcement, Callable[[], None]]] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ends_at: float | None = None
    """The job has ended, and so long it may send."""
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="announcements", daemon=True)
        self._thread.start()

    def put(self, announcement: Announcement, sent: Callable[[], None] = lambda: None) -> bool:
        """Take an announcement, `sent` to be called once the bus has it; False: too many wait."""
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                return False
            self._waiting.append((announcement, sent))
            self._changed.notify()
        return True

    def close(self, within_s: float) -> None:
        """Send what waits, for so long; what is left then is announced when a job opens the tables again."""
        with self._changed:
            self._ends_at = time.monotonic() + within_s
            self._changed.notify()
        self._thread.join(within_s)
        with self._changed:
            left = len(self._waiting)
        if left:
            event("announcement.left", job=self.job, waiting=left)

    def _run(self) -> None:
        failures = 0
        while batch := self._next():
            try:
                refused = self.bus.send(batch)
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
        """What is to be sent now, once there is something; nothing: the job has ended, and all is sent."""
        with self._changed:
            while not self._waiting and self._ends_at is None:
                self._changed.wait()
            return first_batch(announcement for announcement, _ in self._waiting)

    def _taken(self, tried: int, refused: Sequence[Announcement]) -> None:
        """Those that were refused stay first, so that nothing counts as sent before what was put before it."""
        with self._changed:
            batch = [self._waiting.popleft() for _ in range(tried)]
            again = {id(each) for each in refused}
            self._waiting.extendleft(each for each in reversed(batch) if id(each[0]) in again)
        if not refused:
            for _, sent in batch:
                sent()

    def _waited(self, failures: int, why: str) -> bool:
        """Wait before the next try; False: the job has ended, and its time for sending is over."""
        wait_s = backoff_s(failures)
        with self._changed:
            waiting = len(self._waiting)
        event("announcement.failed", job=self.job, why=why, waiting=waiting, failures=failures, wait_s=wait_s)
        with self._changed:
            if self._ends_at is None:
                self._changed.wait_for(lambda: self._ends_at is not None, wait_s)
            else:
                self._changed.wait(min(wait_s, self._ends_at - time.monotonic()))
            return self._ends_at is None or time.monotonic() < self._ends_at
