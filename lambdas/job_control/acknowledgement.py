"""Waits until a job has opened its tables with the deployed generation. A deploy is not over before.

The job says so in its status (`calve.outputs.job_status`). A table that cannot be opened stops no other table, so it ends no
deploy in which others are open.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from calve.errors import CalveError
from calve.outputs.job_status import JobStatus, ReportedTable
from calve.outputs.job_status import Run as Process
from lambdas.aws import read_if_there
from lambdas.job_control.hand_over import POLL_S, Wanted
from lambdas.job_control.jobs import Jobs, Run

NOT_AWAITED = "not awaited in a rollback"
Tables = Mapping[str, ReportedTable]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The work of one request. `time_left_s`: how long it may wait."""

    jobs: Jobs
    s3: Any
    time_left_s: float
    clock: Any = time

    def wait(self, wanted: Wanted) -> str:
        """Wait for the newest run of the generation; returns a sentence about its tables.

        Raises CalveError, with the job's own words: the run ended, all its tables are suspended, or the time is over.
        """
        end_at = self.clock.monotonic() + self.time_left_s
        while True:
            run = self._newest(wanted)
            process, tables = self._said(wanted, run) if run else (None, {})
            if process and process.opened:
                return _sentence(tables)
            if run and not run.active:
                raise _failure(
                    f"run {run.id} ended as {run.state} before", _why(process, tables) or run.error
                )
            if tables and all(each.state.state == "suspended" for each in tables.values()):
                raise _failure("all tables are suspended", _why(process, tables))
            if self.clock.monotonic() + POLL_S > end_at:
                state = (
                    f"run {run.id} is {run.state}" if run else f"no run was started{self._in_the_way(wanted)}"
                )
                raise _failure(f"{state}, and the time is over", _why(process, tables))
            self.clock.sleep(POLL_S)

    def _newest(self, wanted: Wanted) -> Run | None:
        definition = self.jobs.definition(wanted.job_name)
        runs = self.jobs.runs(wanted.job_name) if definition else []
        of = (each for each in runs if definition and definition.generation_of(each) == wanted.generation)
        return next(of, None)

    def _in_the_way(self, wanted: Wanted) -> str:
        active = [each for each in self.jobs.runs(wanted.job_name) if each.active]
        return "".join(f", {each.id} is still {each.state}" for each in active)

    def _said(self, wanted: Wanted, run: Run) -> tuple[Process | None, Tables]:
        """What this run says of itself and its tables. The process of an earlier run began before."""
        status, started = JobStatus(), run.started.replace(microsecond=0)
        if (body := read_if_there(self.s3, wanted.control_bucket, wanted.status_key)) is not None:
            status = JobStatus.from_dict(json.loads(body))
        for id, process in status.runs.items():
            if process.generation == wanted.generation and datetime.fromisoformat(process.began) >= started:
                return process, {name: each for name, each in status.tables.items() if each.run == id}
        return None, {}


def _sentence(tables: Tables) -> str:
    closed = dict(_closed(tables))
    known = f"{len(tables) - len(closed)} of {len(tables)} tables are open"
    return "; ".join([known, *(f"{name}: {why}" for name, why in closed.items())])


def _why(process: Process | None, tables: Tables) -> str:
    """Why the run ended, or why tables are not open."""
    if process and process.reason:
        return f"{process.reason} (fix: {process.fix})" if process.fix else process.reason
    return "; ".join(f"table {name}: {why}" for name, why in _closed(tables))


def _closed(tables: Tables) -> Iterator[tuple[str, str]]:
    """The tables that are suspended, failed or paused, or cannot be opened yet, each with its reason."""
    for name, each in tables.items():
        if each.state.state in ("suspended", "failed", "paused"):
            yield name, f"{each.state.state}, {each.state.reason}"
        elif each.state.state == "pending" and each.why:
            yield name, each.why


def _failure(what: str, why: str | None) -> CalveError:
    told = f"; it says: {why}" if why else "; it said nothing"
    return CalveError(
        f"the job has not opened its tables: {what}{told}",
        fix="mend that and deploy again, a first time with --no-rollback: a rollback deletes the job's log",
    )
