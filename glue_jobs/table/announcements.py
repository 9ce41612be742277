"""Events of a table: every new snapshot of main, by any writer, and changes of its columns or state.

The table itself is the backlog. A look goes from main's head back to the last snapshot handed over.
So the next look finds every snapshot that the outbox refused or that a crashed process lost.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from typing import Literal, Protocol

from calve.log import event
from calve.outputs.announcement import Announcement, EventSource, sent_to
from calve.table.protocol import Commit
from glue_jobs.iceberg.catalog import Table
from glue_jobs.process.java import problem

RECENT_S = 24 * 3600
MOST_RECENT = 100


class Taker(Protocol):
    """`glue_jobs.outputs.outbox.Outbox` or a stand-in."""

    def put(self, announcement: Announcement, sent: Callable[[], None] = ...) -> bool: ...


@dataclass(slots=True)
class Announcer:
    """Announces for one table. Without an outbox it does nothing. Used by the thread of the table's loop.

    sent_to: all snapshots up to this sequence number are known to be on the bus. None: not checked yet.
    """

    source: EventSource
    topic: str
    outbox: Taker | None = None
    sent_to: int | None = None
    _handed: Commit | None = None
    """The last snapshot handed over."""
    _waiting: deque[Announcement] = field(default_factory=deque)
    """Announcements that the outbox has not taken. No table history contains them."""
    _postponed: bool = False

    @property
    def is_level(self) -> bool:
        return not self._waiting and not self._postponed

    def look(self, main: Table) -> None:
        """Hand over the snapshots that are new on main; at the first look and after a rollback, the recent ones.

        Never fails. The next look does what this one could not.
        """
        if self.outbox is None:
            return
        try:
            self._look(self.outbox, main)
        except Exception as error:  # noqa: BLE001 a failed announcement must not stop the table
            self._postpone(problem(error))

    def evolved(self, main: Table, changes: Sequence[str], *, schema_id: int | None) -> None:
        if self.outbox is not None:
            self._report(self.source.evolved(changes, main.found, schema_id=schema_id))

    def stopped(self, state: Literal["suspended", "failed"], code: str, reason: str, fix: str | None) -> None:
        if self.outbox is not None:
            self._report(*self.source.stopped(state, code, reason, fix))

    def _report(self, *announcements: Announcement) -> None:
        self._waiting += announcements
        self._flush()

    def _flush(self) -> bool:
        while self._waiting:
            if self.outbox is None or not self.outbox.put(self._waiting[0]):
                self._postpone("too many announcements wait")
                return False
            self._waiting.popleft()
        return True

    def _look(self, outbox: Taker, main: Table) -> None:
        if not self._flush() or main.head == (self._handed.id if self._handed else None):
            return
        found = above(main.ancestors(), self._handed)
        if found is None or self.sent_to is None:
            line = list(islice(main.ancestors(), MOST_RECENT))
            now, self.sent_to = time.time(), sent_to(line)
            # Nobody knows which of the last day's snapshots consumers have seen, or whether they have seen the head.
            found = [each for each in line if now - each.committed_at <= RECENT_S] or line[:1]
        here = main.found
        for commit in reversed(found):
            said = self.source.committed(commit, here, again=commit.sequence <= self.sent_to)
            if not outbox.put(said, partial(self._sent, commit.sequence)):
                self._postpone("too many announcements wait")
                return
            self._handed = commit
        self._postponed = False

    def _sent(self, sequence: int) -> None:
        """Called by the outbox's thread, in hand-over order."""
        self.sent_to = max(self.sent_to or 0, sequence)

    def _postpone(self, why: str) -> None:
        if not self._postponed:
            self._postponed = True
            event("announcement.postponed", table=str(self.source.table), topic=self.topic, why=why)


def above(ancestors: Iterable[Commit], handed: Commit | None) -> list[Commit] | None:
    """Main's snapshots above the last one handed over, newest first. None if that one is not their direct parent."""
    if handed is None:
        return None
    found = list(takewhile(lambda each: each.sequence > handed.sequence, ancestors))
    return found if found and found[-1].parent == handed.id else None
