"""Hands a job over from one generation to the next. CloudFormation changes a job's definition, but starts and stops no run.

The parts of a job are handed over together: a table moves between them only while no old run of any part writes.

The control object asks a run to finish its rounds and to end. A run that does not end is stopped, which loses nothing: an
unpublished round is repeated. Every step can be repeated and checks the current state first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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

    def write(self, s3: Any, generation: str | None, left: Sequence[str] = ()) -> None:
        """Set the generation that may run; None: none may. left: runs that Glue is still stopping."""
        body = json.dumps({"generation": generation, "left": list(left)}).encode()
        s3.put_object(Bucket=self.bucket, Key=self.key, Body=body, ContentType="application/json")

    def clear(self, s3: Any) -> None:
        """Let no generation run; also if the bucket was deleted."""
        with tolerating("NoSuchBucket"):
            self.write(s3, None)

    def read(self, s3: Any, default: str | None) -> str | None:
        """The generation that may run; `default` if none was ever set."""
        said = self._content(s3)
        if said is None:
            return default
        generation = said["generation"]
        return None if generation is None else str(generation)

    def left(self, s3: Any) -> Sequence[str]:
        """The runs after whose end another one must be started."""
        return [str(run) for run in (self._content(s3) or {}).get("left", ())]

    def _content(self, s3: Any) -> dict[str, Any] | None:
        with tolerating("NoSuchBucket"):
            body = read_if_there(s3, self.bucket, self.key)
            return None if body is None else dict(json.loads(body))
        return None


POLL_S = 5.0
GRACE_S = 600.0
"""How long a run may take to finish its rounds before it is stopped, if the function has that much time."""

GRACE_SHARE = 0.6
"""At most this share of the function's time; the rest is for Glue to stop the run."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The properties of both custom resources: what should run.

    status_key: of the job's report, in the same bucket; only to wait for it. parts: the names of the jobs that share the tables,
    each with its control key and its generation; none: it is one job.
    """

    job_name: str
    continuous: bool
    control_bucket: str
    control_key: str
    generation: str
    status_key: str = ""
    parts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def jobs(self) -> list[Wanted]:
        """The job, or its parts as jobs."""
        found = [
            replace(self, job_name=name, control_key=key, generation=generation, parts={})
            for name, (key, generation) in self.parts.items()
        ]
        return found or [self]

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

    def begin(self, wanted: Wanted, former: Wanted | None = None) -> None:
        """End every run of another generation, then start continuous jobs; the schedule starts a scheduled one.

        former: what ran before. Those of its jobs that are no longer wanted end, too.

        Glue may take longer to stop a run than this function may wait: then the watchdog starts the job. To fail would end a
        rollback, too, for which CloudFormation has no way out.

        Raises:
            CalveError: a job is not deployed at its generation, or an old run did not end in time.
        """
        definitions = {each.job_name: self._deployed(each) for each in wanted.jobs}
        gone = [each for each in former.jobs if each.job_name not in definitions] if former else []
        for each in gone:
            each.control.clear(self._s3)
        for each in wanted.jobs:
            each.control.write(self._s3, each.generation)
        written = False
        while True:
            active, old = self._active(wanted.jobs), self._active(gone)
            for each in wanted.jobs:
                runs, definition = active.get(each.job_name, []), definitions[each.job_name]
                if replaced := [run for run in runs if not each.is_met_by(run, definition)]:
                    old[each.job_name] = replaced
            idle = [each for each in wanted.jobs if each.continuous and each.job_name not in active]
            hanging = self._is_over() and _stopping(old)
            if hanging and not written:
                self._leave(wanted, old)
                written = True
            elif (hanging or not old) and self._all_start(idle):
                return
            else:
                self._wait(old or {each.job_name: [] for each in idle})

    def _leave(self, wanted: Wanted, old: Mapping[str, list[Run]]) -> None:
        """Let the watchdog start a job when its old run has ended. Look again then: a run that has ended wakes no watchdog."""
        for each in wanted.jobs:
            if runs := old.get(each.job_name):
                each.control.write(self._s3, each.generation, [run.id for run in runs])

    def _all_start(self, idle: Sequence[Wanted]) -> bool:
        return all(self._jobs.start(each.job_name, each.generation) for each in idle)

    def end(self, wanted: Wanted) -> None:
        """End every run, and start no other. Raises CalveError: a run did not end in time."""
        for each in wanted.jobs:
            each.control.clear(self._s3)
        while active := self._active(wanted.jobs):
            self._wait(active)

    def _deployed(self, wanted: Wanted) -> Definition:
        definition = self._jobs.definition(wanted.job_name)
        deployed = definition.generation if definition else None
        if definition is None or deployed != wanted.generation:
            raise CalveError(
                f"job {wanted.job_name} is deployed at generation {deployed}, not {wanted.generation}",
                fix="let the hand-over depend on the job, and give both the same generation",
            )
        return definition

    def _active(self, jobs: Sequence[Wanted]) -> dict[str, list[Run]]:
        """The active runs of those jobs that have any, by job."""
        found = {each.job_name: self._jobs.runs(each.job_name) for each in jobs}
        active = {name: [run for run in runs if run.active] for name, runs in found.items()}
        return {name: runs for name, runs in active.items() if runs}

    def _is_over(self) -> bool:
        return bool(self._clock.monotonic() + POLL_S > self._end_at)

    def _wait(self, old: Mapping[str, list[Run]]) -> None:
        """Wait, after stopping runs that should have ended by themselves. old: by job; none: Glue started no other."""
        if self._is_over():
            states = "; ".join(
                f"job {name}: {', '.join(f'{run.id} is {run.state}' for run in runs) or 'Glue refuses to start it'}"
                for name, runs in old.items()
            )
            raise CalveError(
                f"not handed over in time: {states}", fix="stop its runs in the Glue console, then try again"
            )
        for name, runs in old.items() if self._clock.monotonic() >= self._stop_at else ():
            if stubborn := [run for run in runs if run.state != "STOPPING"]:
                self._jobs.stop(name, stubborn)
        self._clock.sleep(POLL_S)


def _stopping(runs: Mapping[str, list[Run]]) -> bool:
    return bool(runs) and all(run.state == "STOPPING" for of_job in runs.values() for run in of_job)
