"""Old snapshots of a table and of its dead letters expire, but for those that are used still (ADR 30), whoever asks for it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from calve import job
from calve.earlier import Earlier, earlier
from calve.emitting import Emitted, left
from calve.log import event
from calve.maintenance import snapshots_to_keep
from calve.position import EARLIER, NO_LETTERS, POSITION_TAG, has_position
from calve.protocol import Commit, nearest_position
from calve.redrive import is_level
from glue_jobs import faults
from glue_jobs.lake import Table
from glue_jobs.requests import REQUESTS

MOST_UNSAID = 1_000
"""Snapshots that wait for EventBridge: more of them are no reason to let the table's metadata grow."""


def expire(settings: job.Table, main: Table, letters: Table | None, *, said: int | None) -> int:
    """Expire snapshots of the table and of its dead letters; how many went. None do while a request waits for its answer.

    said: the sequence number up to which snapshots have been announced; None: nobody announces them.

    Raises:
        Retryable: the catalog or the object store failed.
    """
    main.refresh()
    line = list(main.ancestors())
    stood = nearest_position(line)
    if stood is None or stood.snapshot is None or not REQUESTS.isdisjoint(main.properties):
        return 0
    emitted = Emitted.of(main.properties) if settings.emit else None
    kept = _kept(settings, line, needed(line, emitted, said))
    gone = 0
    if kept < len(line):
        noted = earlier(line, kept, Earlier.of(main.properties, line), settings.dead_letter_budget)
        main.set_properties({EARLIER: noted.to_json()})
        faults.point("expiry.noted", settings.name)
        main.set_tag(POSITION_TAG, stood.snapshot)  # else it holds a snapshot that is no ancestor any more
        gone = _expire(settings, main, line, kept)
    if letters is None or not is_level(stood, letters.ancestors()):
        return gone  # letters that main names and that are still to be published may be on no branch any more
    oldest = nearest_position(line[kept - 1 :])
    named = oldest.dead_letters.round if oldest and oldest.dead_letters else NO_LETTERS
    line = list(letters.ancestors())
    kept = _kept(settings, line, needed_of_letters(line, named))
    return gone + (_expire(settings, letters, line, kept) if kept < len(line) else 0)


def _kept(settings: job.Table, line: Sequence[Commit], used: int) -> int:
    now = time.time()
    ages = [now - each.committed_at for each in line]
    return down_to_a_position(line, snapshots_to_keep(ages, used, settings.maintenance))


def _expire(settings: job.Table, table: Table, line: Sequence[Commit], kept: int) -> int:
    began = time.monotonic()
    gone = table.expire(kept, line[kept - 1].committed_at)
    faults.point("snapshots.expired", settings.name)
    ms = int((time.monotonic() - began) * 1000)
    event("table.expired", table=str(table.name), topic=settings.topic, snapshots=gone, left=kept, ms=ms)
    return gone


def needed(line: Sequence[Commit], emitted: Emitted | None = None, said: int | None = None) -> int:
    """How many of main's newest snapshots, `line`, are used still: down to the one that says where the table stands, the last
    one that has not been emitted, and those that have not been announced, all above the sequence number `said`.
    """
    found = next((n for n, each in enumerate(line) if has_position(each.summary)), len(line) - 1) + 1
    if emitted is not None and (waiting := left(line, emitted)):
        found = max(found, 1 + [each.id for each in line].index(waiting[0].id))
    if said is not None:
        found = max(found, min(MOST_UNSAID, sum(each.sequence > said for each in line)))
    return found


def down_to_a_position(line: Sequence[Commit], kept: int) -> int:
    """How many snapshots stay, if so many were to: the oldest says where the table stood, so that main can go back to it."""
    return next((n for n in range(kept, len(line)) if has_position(line[n - 1].summary)), len(line))


def needed_of_letters(line: Sequence[Commit], named: str) -> int:
    """How many snapshots of the dead-letter table are used still: down to the round that the table's oldest snapshot names, so
    that a rollback finds there what it leaves behind.
    """
    return next((n for n, each in enumerate(line, 1) if each.summary.get("calve.round") == named), 1)
