"""Each kind of maintenance of one table, within limits, and the turns that a job takes between two rounds (ADR 31).

A round deletes by position, so it must run again if one of its files is rewritten meanwhile.
So the maintenance job requests a turn by a table property. The ingest job does a limited part of the work after a round.
If no ingest job answers, the maintenance job does the work.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from calve.config import job
from calve.config.maintenance import TURN_KINDS, Kind
from calve.log import event
from calve.outputs.announcement import sent_to
from calve.schema.columns import REJECTED_AT
from calve.table.summary import REDRIVE, RENAMED, TURN
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.purge import ORPHAN_AGE_S, sweep
from glue_jobs.iceberg.rewriting import CarriedCommit
from glue_jobs.maintenance.between_rounds import expire
from glue_jobs.maintenance.compaction import GROUP_FILES, compact, groups, rewrite_deletes, rewrite_manifests
from glue_jobs.maintenance.retention import retain
from glue_jobs.maintenance.table_stats import renamed_files
from glue_jobs.process.java import ENDING, problem
from glue_jobs.table.open_table import OpenTable

RUN_BYTES = 16_000_000_000
"""The most bytes that a maintenance run rewrites per table: half an hour of two small workers."""

Found = dict[str, int]
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Work:
    """The work for one table. `settings`: from calve.yaml. age_s: see `glue_jobs.iceberg.purge`."""

    settings: job.Table
    main: Table
    dead_letters: Table | None
    age_s: float = ORPHAN_AGE_S

    @property
    def who(self) -> dict[str, str]:
        return {"table": str(self.main.name), "topic": self.settings.topic}

    @property
    def is_forgetting(self) -> bool:
        return CarriedCommit(self.main, self.main).is_forgetting

    def has_left(self) -> bool:
        """Whether a turn would find files to rewrite. Raises Retryable: the object store does not answer."""
        self.main.refresh()
        upkeep = self.settings.maintenance
        return bool(groups(self.main, upkeep.file_bytes, 1, one_name=upkeep.one_name))

    def run(self, kind: Kind, stop: Stop, *, turn: bool = False) -> Found:
        """Do the due work of a kind and log it; returns its counts.

        turn: do only a part that does not delay the table's rounds: one group of files that gives one file.
        Raises CalveError: the work is not possible, or not possible now.
        """
        began = time.monotonic()
        match kind:
            case "compact" | "deletes":
                found = self._compacted(kind, stop, turn=turn)
            case "manifests":
                found = self._of_both(rewrite_manifests)
            case "orphans":
                found = self._of_both(lambda each: sweep(each, age_s=self.age_s))
            case "rows" | "dead_letters":
                found = self._retained(kind)
            case "snapshots":
                said = sent_to(self.main.ancestors()) or None  # None: nobody announces the snapshots
                found = {"snapshots": expire(self.settings, self.main, self.dead_letters, said=said)}
        took_ms = int((time.monotonic() - began) * 1000)
        event("maintenance.done", **self.who, kind=kind, done=found, ms=took_ms)
        return found

    def _of_both(self, work: Callable[[CarriedCommit], Mapping[str, int]]) -> Found:
        found: Counter[str] = Counter()
        for each in (self.main, self.dead_letters):
            if each is not None:
                found.update(work(CarriedCommit(each, self.main)))
        return dict(found)

    def _compacted(self, kind: Kind, stop: Stop, *, turn: bool) -> Found:
        upkeep = self.settings.maintenance
        budget_bytes, group_files = (upkeep.file_bytes, 1) if turn else (RUN_BYTES, GROUP_FILES)

        def compacted(upkept: CarriedCommit) -> Mapping[str, int]:
            return compact(
                upkept,
                file_bytes=upkeep.file_bytes,
                budget_bytes=budget_bytes,
                stop=stop,
                group_files=group_files,
                one_name=upkeep.one_name and upkept.table is self.main,
            )

        found = self._of_both(compacted)
        if upkeep.one_name and RENAMED in self.main.properties and not renamed_files(self.main):
            self.main.set_properties({}, remove=[RENAMED])
        if kind == "deletes":
            found["delete_files"] = rewrite_deletes(CarriedCommit(self.main, self.main))
        return found

    def _retained(self, kind: Kind) -> Found:
        """Delete old rows, or old dead letters unless a redrive request waits."""
        rows, dead_letters_s = self.settings.maintenance.rows, self.settings.maintenance.dead_letters_s
        if kind == "rows" and rows:
            table, column, keep_s = self.main, rows.column, rows.keep_s
        elif kind == "dead_letters" and self.dead_letters and dead_letters_s is not None:
            if REDRIVE in self.main.properties:
                return {"rows": 0}
            table, column, keep_s = self.dead_letters, REJECTED_AT, dead_letters_s
        else:
            return {"rows": 0}
        before = datetime.now(UTC) - timedelta(seconds=keep_s)
        upkept = CarriedCommit(table, self.main)
        return retain(upkept, kind, column, before, budget_bytes=RUN_BYTES)


ANSWER_S = 90.0
"""A job looks for requests twice a minute. A job whose round takes longer loses one round to the rewrite."""
POLL_S = 2.0


def asked(table: Table, kind: Kind, wait: Callable[[float], bool]) -> bool:
    """Request one turn of a kind of work and wait until it is done; False if nobody answers or `wait` says to stop.

    Raises Retryable: the catalog does not answer.
    """
    table.set_properties({TURN: kind})
    until = time.monotonic() + ANSWER_S
    while time.monotonic() < until and not wait(POLL_S):
        table.refresh()
        if TURN not in table.properties:
            return True
    table.set_properties({}, remove=[TURN])
    table.refresh()
    return False


def take(table: OpenTable, spare_s: float) -> float:
    """Do one turn of the requested work, if any; returns the seconds it took. Never fails the table.

    spare_s: the time until the next round. A started group of files is finished.
    """
    kind = table.main.properties.get(TURN)
    if kind is None:
        return 0.0
    began = time.monotonic()
    try:
        if kind in TURN_KINDS:
            work = Work(table.config, table.main, table.dead_letters.table)
            work.run(kind, lambda: time.monotonic() - began > spare_s, turn=True)
        table.main.set_properties({}, remove=[TURN])
        table.main.refresh()
    except ENDING:
        raise
    except Exception as error:  # noqa: BLE001 failed maintenance must not stop the table
        table.event("maintenance.failed", kind=kind, why=problem(error))
    return time.monotonic() - began
