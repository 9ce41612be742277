"""Glue's jobs and their runs, and the function that starts one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import HTTPClientError

from calve.errors import ConfigError, Retryable
from lambdas.aws import tolerating

GENERATION = "--generation"
CONTROL = "--control"
DRAIN = "--drain"
ACTIVE = frozenset({"WAITING", "STARTING", "RUNNING", "STOPPING"})
ABSENT = "EntityNotFoundException"
BUSY = ("ConcurrentRunsExceededException", "ResourceNumberLimitExceededException")
RUNS = 50
"""How many of the newest runs are read; Glue lists the newest first."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run; `generation` None: it was started without one, by hand or by a schedule. error: Glue's own words."""

    id: str
    state: str
    started: datetime
    completed: datetime | None = None
    arguments: dict[str, str] = field(default_factory=dict)
    error: str = ""

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def generation(self) -> str | None:
        return self.arguments.get(GENERATION)

    def lasted_s(self, now: datetime) -> float:
        return ((self.completed or now) - self.started).total_seconds()


@dataclass(frozen=True, slots=True)
class Definition:
    """A deployed job; `modified`: its last change."""

    arguments: dict[str, str]
    modified: datetime

    @property
    def generation(self) -> str | None:
        return self.arguments.get(GENERATION)

    def generation_of(self, run: Run) -> str | None:
        """The generation of a run: its argument, else this definition's if the run began after the last change."""
        if run.generation is not None:
            return run.generation
        return self.generation if run.started > self.modified else None

    def drains(self, run: Run) -> bool:
        """Whether a run of this definition ends once its topics are read."""
        return (self.arguments | run.arguments).get(DRAIN) == "true"


class Jobs:
    """Glue. A deleted job is a result, not an error."""

    def __init__(self, glue: Any) -> None:
        self._glue = glue

    def definition(self, name: str) -> Definition | None:
        with tolerating(ABSENT):
            job = self._glue.get_job(JobName=name)["Job"]
            return Definition(dict(job.get("DefaultArguments") or {}), job["LastModifiedOn"].astimezone(UTC))
        return None

    def runs(self, name: str) -> list[Run]:
        """The newest runs, newest first; none if the job was deleted."""
        found: list[dict[str, Any]] = []
        with tolerating(ABSENT):
            found = self._glue.get_job_runs(JobName=name, MaxResults=RUNS)["JobRuns"]
        return sorted(map(_run, found), key=lambda run: run.started, reverse=True)

    def start(self, name: str, generation: str | None) -> str | None:
        """Start a run, with its generation as the only argument; None if Glue has no capacity now.

        Also None if Glue does not answer: the run may have been started, and the list of runs will say so.
        """
        arguments = {GENERATION: generation} if generation else {}
        with tolerating(*BUSY), suppress(HTTPClientError):
            return str(self._glue.start_job_run(JobName=name, Arguments=arguments)["JobRunId"])
        return None

    def stop(self, name: str, runs: list[Run]) -> None:
        """Stop runs; also if a run has ended or the job was deleted."""
        self._glue.batch_stop_job_run(JobName=name, JobRunIds=[run.id for run in runs])


def _run(found: dict[str, Any]) -> Run:
    completed = found.get("CompletedOn")
    return Run(
        id=found["Id"],
        state=found["JobRunState"],
        started=found["StartedOn"].astimezone(UTC),
        completed=completed.astimezone(UTC) if completed else None,
        arguments=dict(found.get("Arguments") or {}),
        error=found.get("ErrorMessage") or "",
    )


def start(jobs: Jobs, known: frozenset[str], event: Mapping[str, Any]) -> str:
    """Start a run of the event's job; returns its id.

    Raises:
        Retryable: Glue has no capacity, such as beside a run in progress.
        ConfigError: the event holds more than the name of a job of this deployment.
    """
    name = event.get("job")
    definition = jobs.definition(name) if name in known else None
    if definition is None or len(event) > 1:
        names = ", ".join(sorted(known))
        raise ConfigError(
            "the event does not name a job of this deployment, or holds more than its name",
            fix=f'send {{"job": NAME}}, where NAME is one of {names}',
        )
    run = jobs.start(str(name), definition.generation)
    if run is None:
        raise Retryable(
            f"Glue starts no run of {name} now: one is in progress, the account's quota of runs is used up, or no answer came",
            fix="wait until a run has ended, or stop it",
        )
    return run
