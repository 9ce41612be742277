"""Keeps continuous jobs running: restarts a run that nobody stopped, with growing delays, and gives up in the end.

It stores no state: Glue's list of runs says how often a job has failed. EventBridge delivers at least once and in any order, so
an event only triggers a check of the newest run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from lambdas.aws import Schedules
from lambdas.job_control.hand_over import Control
from lambdas.job_control.jobs import CONTROL, Jobs, Run

LONG_S = 3600.0
"""A run that lasted longer resets the count of failures."""

FIRST_DELAY_S = 60
LONGEST_DELAY_S = 900
EXPIRED_DELAY_S = 900
"""Glue itself restarts a run after a maintenance window; the watchdog only acts if it has not."""

BUSY_DELAY_S = 60
DEPLOY_DELAY_S = 300
ENDED = frozenset({"SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED", "STOPPED"})
PLANNED = frozenset({"SUCCEEDED", "TIMEOUT", "EXPIRED"})
"""After a long run no failure: a run ends once a week by itself, or by Glue."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The function's variables. continuous_jobs: Glue jobs to keep running. restarts: how many may fail in a row."""

    continuous_jobs: frozenset[str]
    restarts: int
    schedule_group: str
    scheduler_role_arn: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that ended, from an event; `checks`: how often its restart was delayed."""

    job: str
    run: str
    state: str
    checks: int = 0

    @classmethod
    def parse(cls, detail: dict[str, Any]) -> Ended:
        return cls(detail["jobName"], detail["jobRunId"], detail["state"], int(detail.get("checks", 0)))


class Act(StrEnum):
    """What the watchdog does after an event."""

    NOTHING = "nothing"
    RESTART = "restart"
    LATER = "later"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision and its reason; `failures` in a row, `delay_s` until the next check."""

    act: Act
    why: str
    failures: int = 0
    delay_s: int = 0


@dataclass(frozen=True, slots=True)
class Watchdog:
    """Glue, S3 and the scheduler. How many restarts in a row may fail."""

    jobs: Jobs
    s3: Any
    later: Schedules
    continuous_jobs: frozenset[str]
    restarts: int

    def handle(self, ended: Ended, now: datetime) -> Verdict:
        if ended.job not in self.continuous_jobs:
            return Verdict(Act.NOTHING, "the job is not continuous")
        definition = self.jobs.definition(ended.job)
        if definition is None or definition.generation is None:
            return Verdict(Act.NOTHING, "the job was deleted")
        allowed: str | None = definition.generation
        left: Sequence[str] = ()
        if place := definition.arguments.get(CONTROL):
            control = Control.parse(place)
            allowed = control.read(self.s3, default=definition.generation)
            left = control.left(self.s3) if ended.state == "STOPPED" else ()
        if allowed is None:
            return Verdict(Act.NOTHING, "the job is being deleted")
        if ended.state == "STOPPED" and ended.run not in left:
            return Verdict(Act.NOTHING, "the run was stopped by a person, or by a deploy that starts another")
        verdict = judge(ended, self.jobs.runs(ended.job), restarts=self.restarts, now=now)
        if verdict.act == Act.RESTART:
            if allowed != definition.generation:
                why = "a deploy is in progress, and will start the job itself"
                verdict = Verdict(Act.LATER, why, verdict.failures, DEPLOY_DELAY_S)
            elif not self.jobs.start(ended.job, definition.generation):
                why = "Glue has no capacity for the run now"
                verdict = Verdict(Act.LATER, why, verdict.failures, BUSY_DELAY_S)
        if verdict.act == Act.LATER:
            checks = ended.checks + 1
            # A duplicate event makes no second schedule of this name.
            digest = hashlib.sha256(f"{ended.run}/{checks}".encode()).hexdigest()[:24]
            detail = {"jobName": ended.job, "jobRunId": ended.run, "state": ended.state, "checks": checks}
            event = {"source": "calve", "detail-type": "Glue Job State Change", "detail": detail}
            self.later.invoke(f"watchdog-{digest}", now + timedelta(seconds=verdict.delay_s), event)
        return verdict


def judge(ended: Ended, runs: Sequence[Run], *, restarts: int, now: datetime) -> Verdict:
    """The decision for an ended run, given the job's runs, newest first."""
    if ended.state not in ENDED:
        return Verdict(Act.NOTHING, f"a run that is {ended.state} needs no action")
    if not runs or runs[0].id != ended.run:
        return Verdict(Act.NOTHING, "a newer run exists")
    if any(run.active for run in runs[1:]):
        return Verdict(Act.NOTHING, "another run is in progress")
    if ended.state == "EXPIRED" and not ended.checks:
        return Verdict(Act.LATER, "Glue restarts the run after maintenance", delay_s=EXPIRED_DELAY_S)
    if ended.state in PLANNED and runs[0].lasted_s(now) > LONG_S:
        return Verdict(Act.RESTART, f"a long run ended as {ended.state}")
    failures = 0
    for run in runs:
        # A deploy, a manual stop or a long run resets the count.
        if run.generation != runs[0].generation or run.state == "STOPPED" or run.lasted_s(now) > LONG_S:
            break
        failures += 1
    failures = max(1, failures)
    if failures > restarts:
        return Verdict(Act.EXHAUSTED, f"{failures} runs in a row ended too soon", failures)
    delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (failures - 2)) if failures > 1 else 0
    act = Act.LATER if delay_s and not ended.checks else Act.RESTART
    return Verdict(act, f"the run ended as {ended.state}", failures, delay_s)
