"""Maintenance by the table's own writer between two rounds (ADR 30, `docs/maintenance.md`).

It merges small files and expires old snapshots. Each is one commit that moves no offset, refused if anybody else moved the
table. A failure is retried later. Work that is too long for the wait between rounds is left to the maintenance job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from calve.config import job
from calve.config.maintenance import snapshots_to_keep
from calve.log import event
from calve.outputs.emitting import Emitted, left
from calve.requests.expired_history import ExpiredHistory, earlier
from calve.requests.redrive import is_level
from calve.table.position import NO_DEAD_LETTERS, Position
from calve.table.protocol import Commit, may_publish, nearest_position, position_commit
from calve.table.summary import (
    EARLIER,
    POSITION_TAG,
    REQUESTS,
    SETTINGS,
    carried_position,
    has_position,
    round_of,
    settings,
)
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.commit_cost import CostMeter
from glue_jobs.iceberg.kept_digests import keep
from glue_jobs.iceberg.layout import clustered, tasks_for
from glue_jobs.iceberg.purge import delete
from glue_jobs.iceberg.rewriting import Group, planned, replacement, write_rest
from glue_jobs.iceberg.staging import commit
from glue_jobs.process import faults
from glue_jobs.process.java import ENDING, problem
from glue_jobs.table.open_table import OpenTable, Outcome
from glue_jobs.table.opening import Opener

MERGED_AT_ONCE = 32
"""Files of about the same size per merge. A row is rewritten two or three times until its file has full size."""
TIERS = (1024, 32)
"""Fractions of the target size. Files below one are merged with each other."""
CHOSEN_FOR_SIZE = {
    "delete-ratio-threshold": "1.0",
    "max-file-size-bytes": str(2**62),
    "rewrite-job-order": "files-desc",
}
"""Options of Iceberg's planner: choose files only because they are small."""
WORN = 0.2
"""Share of deleted rows at which a file is written again. Only the table's own writer can do it where each round deletes."""
WORN_FILES = {
    "delete-ratio-threshold": str(WORN),
    "min-file-size-bytes": "0",
    "max-file-size-bytes": str(2**62),
    "target-file-size-bytes": str(2**61),
}
"""Options of Iceberg's planner: choose files only because rows of them are deleted."""
LEAST_COST = 12_000_000
"""The minimum budget of a turn, however short the wait: as many of the smallest files as one merge takes."""
FIRST_RATE = 4_000_000.0
"""The expected cost per second of the first merge. Later merges measure it."""
LOOK_EVERY_S = 300.0
AT_END_S = 60.0
"""How long an ending job may merge. The table is complete by then."""


Choice = Callable[[int], tuple[list[Group], int]]
"""A budget -> the files to write again, and how many others wait for it."""


@dataclass(slots=True)
class LoopMaintenance:
    """The maintenance of one table. Everything it remembers may be lost at any time."""

    opener: Opener
    rate: float = FIRST_RATE
    settled: bool = False
    unmerged: int = MERGED_AT_ONCE
    """Commits since the last look for small files. It starts high, because other processes' commits are unknown."""
    unexpired: int = 0
    looked_at: float | None = None
    _failed: bool = field(default=False, init=False)

    @property
    def opened(self) -> OpenTable:
        return self.opener.opened

    def between(self, outcome: Outcome, wait_s: float | None) -> float | None:
        """Do the due work in the wait before the next round, or at the end if `wait_s` is None; returns the remaining wait.

        Never fails the table.
        """
        began = time.monotonic()
        try:
            self._turn(outcome, AT_END_S if wait_s is None else wait_s)
            self._failed = False
        except ENDING:
            raise
        except Exception as error:  # noqa: BLE001 failed maintenance must not stop the table
            if not self._failed:
                self._failed = True
                self.opened.event("maintenance.postponed", why=problem(error))
        return None if wait_s is None else max(0.0, wait_s - (time.monotonic() - began))

    def _turn(self, outcome: Outcome, spare_s: float) -> None:
        committed = outcome.snapshot is not None
        self.unmerged += committed
        self.unexpired += committed
        if not self.settled:
            self.settled = True
            self._settle(self.opened.main)
        if spare_s and self.unmerged >= MERGED_AT_ONCE:
            self.unmerged = 0
            if self.opened.main.total("data-files") >= MERGED_AT_ONCE:
                self._rewrite(outcome.position, spare_s, self._small)
        elif spare_s and committed and _is_worn(self.opened.main):
            self._rewrite(outcome.position, spare_s, self._worn)
        maintenance, now = self.opened.config.maintenance, time.monotonic()
        many = max(maintenance.snapshots_at_most, maintenance.snapshots_at_least) // 2
        if self.looked_at is None or now - self.looked_at >= LOOK_EVERY_S or self.unexpired >= many:
            self.unexpired, self.looked_at = 0, now
            dead_letters, announcer = self.opened.dead_letters.table, self.opener.announcer
            if dead_letters is not None:
                self._settle(dead_letters)
            said = None if announcer.outbox is None else announcer.sent_to or 0
            expire(self.opened.config, self.opened.main, dead_letters, said=said)

    def _settle(self, table: Table) -> None:
        wanted = settings(self.opened.config.maintenance.file_bytes)
        if table.properties.get(SETTINGS) != wanted[SETTINGS]:
            table.set_properties(wanted)
            faults.point("maintenance.settled", self.opened.config.name)

    def _rewrite(self, base: Position, spare_s: float, choose: Choice) -> None:
        """Write the chosen files again without their deleted rows, as many as the time allows. S3 Tables does this itself."""
        opened, main = self.opened, self.opened.main
        if main.lake.is_managed:
            return
        main.refresh()
        if len(base.offsets) != 1:
            return  # if the topic was made again, only files tell its incarnations apart
        began, meter = time.monotonic(), CostMeter(main.lake)
        chosen, left = choose(int(spare_s * self.rate))
        if not chosen:
            return
        stood = position_commit(main.ancestors())
        if stood is None or not may_publish([stood], base):
            return

        head, cores = main.java.currentSnapshot(), opened.services.cores
        tasks = [task for group in chosen for task in group.tasks]
        size = sum(group.size_bytes for group in chosen)
        laid_out = partial(clustered, table=main, tasks=tasks_for(size, cores, cores))
        staged = write_rest(main, tasks, laid_out)
        faults.point("merge.staged", opened.config.name)
        cost = meter.of_work(main, staged, read=len(tasks)) | opened.carried()
        summary, update = carried_position(stood.summary, cost), replacement(main, head, tasks, staged)
        snapshot = commit(main, update, summary, lambda ancestors: may_publish(ancestors, base))
        faults.point("merge.committed", opened.config.name)
        self.unexpired += 1
        if left >= MERGED_AT_ONCE:
            self.unmerged = MERGED_AT_ONCE // 2  # otherwise ever more files would stay unaffordable
        took_s = time.monotonic() - began
        self.rate = (self.rate + sum(each.cost for each in chosen) / took_s) / 2
        opened.event(
            "table.merged",
            snapshot_id=snapshot,
            files=len(tasks),
            into=len(staged.files),
            bytes=size,
            bytes_written=staged.size_bytes,
            ms=int(took_s * 1000),
        )

    def _small(self, budget: int) -> tuple[list[Group], int]:
        """The affordable groups of the smallest size class with enough files, and the number of files left."""
        for share in TIERS:
            found = list(self._groups(share))
            if chosen := affordable(found, budget):
                left = sum(len(each.tasks) for each in found) - sum(len(each.tasks) for each in chosen)
                return chosen, left
        return [], 0

    def _groups(self, share: int) -> Iterator[Group]:
        """The groups of files below a fraction of the target size, most files first."""
        size = self.opened.config.maintenance.file_bytes
        options = CHOSEN_FOR_SIZE | {
            "target-file-size-bytes": str(size),
            "min-file-size-bytes": str(size // share),
            "max-file-group-size-bytes": str(size),
            "min-input-files": str(MERGED_AT_ONCE),
        }
        for group in planned(self.opened.main, options):
            if len(group.tasks) > 1:
                yield Group(group.tasks, group.size_bytes)

    def _worn(self, budget: int) -> tuple[list[Group], int]:
        """Files with many deleted rows, small ones first: at least one, and more as far as the budget goes."""
        tasks = [task for group in planned(self.opened.main, WORN_FILES) for task in group.tasks]
        files = sorted(
            (Group((each,), int(each.file().fileSizeInBytes())) for each in tasks),
            key=lambda each: each.size_bytes,
        )
        costs = accumulate(each.cost for each in files)
        return [each for each, cost in zip(files, costs, strict=True) if cost <= budget] or files[:1], 0


def _is_worn(main: Table) -> bool:
    """Whether many of the table's rows are deleted. The totals of its snapshot say so, without a look at its files."""
    return main.total("position-deletes") > WORN * main.total("records")


def affordable(found: Iterable[Group], budget: int) -> list[Group]:
    """Groups, or parts of them, that cost at most `budget`; at least one if it is cheap."""
    chosen: list[Group] = []
    for each in found:
        part = each.part(budget, least=MERGED_AT_ONCE)
        if part.cost > max(budget, 0 if chosen else LEAST_COST):
            continue
        chosen.append(part)
        budget -= part.cost
        if budget <= 0:
            break
    return chosen


MOST_UNSAID = 1_000
"""The most snapshots kept for EventBridge. More must not make the table's metadata grow."""


def expire(settings: job.Table, main: Table, dead_letters: Table | None, *, said: int | None) -> int:
    """Expire snapshots of the table and of its dead letters; returns their number. A waiting request prevents it.

    said: the sequence number up to which snapshots have been announced; None if nobody announces them.
    Raises Retryable: the catalog or the object store failed, or another writer was faster.
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
        noted = earlier(line, kept, ExpiredHistory.of(main.properties, line), settings.dead_letter_budget)
        digests = keep(main, line[kept:])
        faults.point("expiry.kept", settings.name)
        main.note({EARLIER: noted.to_json()} | digests.properties)
        faults.point("expiry.noted", settings.name)
        delete(main, digests.files)
        main.set_tag(POSITION_TAG, stood.snapshot)  # else it may hold a snapshot that is no ancestor
        gone = _expire(settings, main, line, kept)
    if dead_letters is None or not is_level(stood, dead_letters.ancestors()):
        return gone  # dead letters that main names but nobody has published may be on no branch
    oldest = nearest_position(line[kept - 1 :])
    named = oldest.dead_letters.round if oldest and oldest.dead_letters else NO_DEAD_LETTERS
    line = list(dead_letters.ancestors())
    kept = _kept(settings, line, needed_of_dead_letters(line, named))
    return gone + (_expire(settings, dead_letters, line, kept) if kept < len(line) else 0)


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
    """The number of main's newest snapshots, `line`, that are still needed.

    These are the snapshots down to the position, the oldest one not emitted, and those not announced (above the sequence
    number `said`).
    """
    found = next((n for n, each in enumerate(line) if has_position(each.summary)), len(line) - 1) + 1
    if emitted is not None and (waiting := left(line, emitted)):
        found = max(found, 1 + [each.id for each in line].index(waiting[0].id))
    if said is not None:
        found = max(found, min(MOST_UNSAID, sum(each.sequence > said for each in line)))
    return found


def down_to_a_position(line: Sequence[Commit], kept: int) -> int:
    """The number of snapshots to keep, at least `kept`. The oldest has a position, so that main can roll back to it."""
    return next((n for n in range(kept, len(line)) if has_position(line[n - 1].summary)), len(line))


def needed_of_dead_letters(line: Sequence[Commit], named: str) -> int:
    """The number of dead-letter snapshots that are still needed: down to the round that the table's oldest snapshot names.

    A rollback needs that history to find the rounds it removes.
    """
    return next((n for n, each in enumerate(line, 1) if round_of(each.summary) == named), 1)
