"""Snapshots of a table that no job keeps expire by the rules of `glue_jobs.upkeep`; where one does, it has done it (ADR 30)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from calve import job
from calve.announcement import sent_to
from calve.earlier import Earlier, earlier
from calve.emitting import Emitted
from calve.maintenance import snapshots_to_keep
from calve.position import EARLIER, NO_LETTERS, POSITION_TAG
from calve.protocol import Commit, nearest_position
from glue_jobs import faults
from glue_jobs.lake import Table
from glue_jobs.requests import REQUESTS
from glue_jobs.upkeep import down_to_a_position, needed, needed_of_letters


def expire(settings: job.Table, main: Table, letters: Table | None) -> int:
    """Expire snapshots of the table and of its dead letters; how many went. None do while a request waits for its answer.

    Raises:
        Retryable: the catalog or the object store failed.
    """
    main.refresh()
    line = list(main.ancestors())
    stood = nearest_position(line)
    if stood is None or stood.snapshot is None or not REQUESTS.isdisjoint(main.properties):
        return 0
    emitted = Emitted.of(main.properties) if settings.emit else None
    said = sent_to(line) or None  # of a table that nobody announces none waits
    kept = _kept(settings, line, needed(line, emitted, said))
    gone = 0
    if kept < len(line):
        known = Earlier.of(main.properties, line)
        noted = earlier(line, kept, known, settings.dead_letter_budget)
        main.set_properties({EARLIER: noted.to_json()})
        main.set_tag(POSITION_TAG, stood.snapshot)
        faults.point("maintenance.noted", main.name.table)
        gone = main.expire(kept, line[kept - 1].committed_at)
        faults.point("maintenance.expired", main.name.table)
    if letters is None:
        return gone
    oldest = nearest_position(line[kept - 1 :])
    named = oldest.dead_letters.round if oldest and oldest.dead_letters else NO_LETTERS
    line = list(letters.ancestors())
    kept = _kept(settings, line, needed_of_letters(line, named))
    return gone + (letters.expire(kept, line[kept - 1].committed_at) if kept < len(line) else 0)


def _kept(settings: job.Table, line: Sequence[Commit], used: int) -> int:
    ages = [time.time() - each.committed_at for each in line]
    return down_to_a_position(line, snapshots_to_keep(ages, used, settings.maintenance))
