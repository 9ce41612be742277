"""Hands a job over from one generation to the next. CloudFormation changes a job's definition, but starts and stops no run.

The control object asks a run to finish its rounds and to end. A run that does not end is stopped, which loses nothing: an
unpublished round is repeated. Every step can be repeated and checks the current state first.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from calve.errors import CalveError, ConfigError
from lambdas.aws import read_if_there, tolerating
from lambdas.job_control.jobs import Definition, Jobs, Run


@dataclass(frozen=True, slots=True)
class Control:
    """The location of a job's control object."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Control:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        if not uri.startswith("s3://") or not bucket or not key:
            raise ConfigError(f"{uri} is no place of a control object", fix="use s3://BUCKET/KEY")
        return cls(bucket, key)

    def write(self, s3: Any, generation: str | None) -> None:
        """Set the generation that may run; None: none may."""
        body = json.dumps({"generation": generation}).encode()
        s3.put_object(Bucket=self.bucket, Key=self.key, Body=body, ContentType="application/json")

    def clear(self, s3: Any) -> None:
        """Let no generation run; also if the bucket was deleted."""
        with tolerating("NoSuchBucket"):
            self.write(s3, None)

    def read(self, s3: Any, default: str | None) -> str | None:
        """The generation that may run; `default` if none was ever set."""
        with tolerating("NoSuchBucket"):
            body = read_if_there(s3, self.bucket, self.key)
            if body is None:
                return default
            generation = json.loads(body)["generation"]
            return None if generation is None else str(generation)
        return default


POLL_S = 5.0
GRACE_S = 600.0
"""How long a run may take to finish its rounds before it is stopped, if the function has that much time."""

GRACE_SHARE = 0.6
"""At most this share of the function's time; the rest is for Glue to stop the run."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The properties of both custom resources: what should run.

    status_key: of the job's report, in the same bucket; only to wait for it.
    """

    job_name: str
    continuous: bool
    control_bucket: str
    control_key: str
    generation: str
    status_key: str = ""

    @property
    def control(self) -> Control:
        return Control(self.control_bucket, self.control_key)

    def is_met_by(self, run: Run, definition: Definition) -> bool:
        """True if a run need not be replaced: it runs this generation, in this mode, and continues."""
        return (
            run.state != "STOPPING"
            and definition.generation_of(run) == self.generation
            and definition.drains(run) is not self.continuous
        )


class HandOver:
    """The work of one request, which ends early enough to answer CloudFormation."""

    def __init__(self, jobs: Jobs, s3: Any, *, time_left_s: float, clock: Any = time) -> None:
        self._jobs = jobs
        self._s3 = s3
        self._clock = clock
        now = clock.monotonic()
        self._stop_at = now + min(GRACE_S, GRACE_SHARE * time_left_s)
        self._end_at = now + time_left_s

    def begin(self, wanted: Wanted) -> None:
        """End every run of another generation, then start a continuous job; the schedule starts a scheduled one.

        Raises:
            CalveError: the job is not deployed at this generation, or an old run did not end in time.
        """
        definition = self._jobs.definition(wanted.job_name)
        deployed = definition.generation if definition else None
        if definition is None or deployed != wanted.generation:
            raise CalveError(
                f"job {wanted.job_name} is deployed at generation {deployed}, not {wanted.generation}",
                fix="let the hand-over depend on the job, and give both the same generation",
            )
        wanted.control.write(self._s3, wanted.generation)
        while True:
            active = [run for run in self._jobs.runs(wanted.job_name) if run.active]
            if active and all(wanted.is_met_by(run, definition) for run in active):
                return
            if not active and (not wanted.continuous or self._jobs.start(wanted.job_name, wanted.generation)):
                return
            self._wait(wanted.job_name, [run for run in active if not wanted.is_met_by(run, definition)])

    def end(self, wanted: Wanted) -> None:
        """End every run, and start no other. Raises CalveError: a run did not end in time."""
        wanted.control.clear(self._s3)
        while active := [run for run in self._jobs.runs(wanted.job_name) if run.active]:
            self._wait(wanted.job_name, active)

    def _wait(self, job: str, old: list[Run]) -> None:
        """Wait, after stopping runs that should have ended by themselves."""
        now = self._clock.monotonic()
        if now + POLL_S > self._end_at:
            states = ", ".join(f"{run.id} is {run.state}" for run in old) or "Glue refuses to start another"
            raise CalveError(
                f"job {job} was not handed over in time: {states}",
                fix="stop its runs in the Glue console, then try again",
            )
        stubborn = [run for run in old if run.state != "STOPPING"]
        if now >= self._stop_at and stubborn:
            self._jobs.stop(job, stubborn)
        self._clock.sleep(POLL_S)
