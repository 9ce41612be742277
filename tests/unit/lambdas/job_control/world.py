"""Glue, S3 and the scheduler of moto, where a test decides what state a run is in."""

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import boto3
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.glue.models import glue_backends
from moto.moto_api import state_manager

from lambdas.job_control.hand_over import Control
from lambdas.job_control.jobs import Jobs

JOB = "trading-main"
STOPPING = "before-call.glue.BatchStopJobRun"
CONTROL = Control("lake", "_calve/jobs/main.json")


class World:
    """A job at generation `g1`, and others that a test adds.

    `stopping_state` is what BatchStopJobRun does to a run, which moto does not know.
    """

    def __init__(self, session: boto3.Session) -> None:
        self.stopping_state = "STOPPED"
        self.stopped: list[str] = []
        self.session = session
        session.events.register(STOPPING, self._stop)
        state_manager.set_transition("glue::job_run", {"progression": "manual", "times": 10**6})
        self.glue = session.client("glue")
        self.s3 = session.client("s3")
        self.scheduler = session.client("scheduler")
        self.jobs = Jobs(self.glue)
        self.s3.create_bucket(Bucket=CONTROL.bucket)
        self.scheduler.create_schedule_group(Name="trading")
        self.add(JOB)

    def add(self, name: str, generation: str = "g1") -> None:
        self.glue.create_job(
            Name=name,
            Role="role",
            Command={"Name": "gluestreaming", "ScriptLocation": "s3://assets/ingest.py"},
            DefaultArguments={
                "--generation": generation,
                "--control": f"s3://{CONTROL.bucket}/{CONTROL.key}",
            },
        )
        self._named(name).last_modified_on = datetime(2026, 11, 1)  # noqa: DTZ001 moto's times have no zone

    def close(self) -> None:
        self.session.events.unregister(STOPPING, self._stop)

    @property
    def _job(self) -> Any:
        return self._named(JOB)

    def _named(self, name: str) -> Any:
        return glue_backends[DEFAULT_ACCOUNT_ID]["us-east-1"].jobs[name]

    def define(self, **arguments: str) -> None:
        """Arguments of the definition."""
        self._job.default_arguments = self._job.default_arguments | arguments

    def deploy(self, generation: str, modified: datetime | None = None) -> None:
        """What CloudFormation does to the definition."""
        self.define(**{"--generation": generation})
        self._job.last_modified_on = (modified or datetime.now(UTC)).replace(tzinfo=None)

    def drop(self) -> None:
        self.glue.delete_job(JobName=JOB)

    def run(
        self, state: str = "RUNNING", *, age_s: float = 60, lasted_s: float | None = None, **arguments
    ) -> str:
        """A run that was started so long ago; an ended one lasted until now, or as long as told."""
        running = [each for each in self._job.job_runs if each.status in ("STARTING", "RUNNING")]
        for each in running:
            each.status = "WAITING"  # so that moto starts another
        run_id: str = self.glue.start_job_run(
            JobName=JOB, Arguments={f"--{name}": value for name, value in arguments.items()}
        )["JobRunId"]
        for each in running:
            each.status = "RUNNING"
        run = self._of(run_id)
        run.arguments = {f"--{name}": value for name, value in arguments.items()}
        run.status = state
        run.started_on = (datetime.now(UTC) - timedelta(seconds=age_s)).replace(tzinfo=None)
        run.completed_on = run.started_on + timedelta(seconds=age_s if lasted_s is None else lasted_s)
        return run_id

    def turn(self, run_id: str, state: str) -> None:
        self._of(run_id).status = state

    def states(self, job: str = JOB) -> dict[str, str]:
        return {run.job_run_id: run.status for run in self._named(job).job_runs}

    def newest(self) -> Any:
        return self._job.job_runs[-1]

    def control(self, key: str = CONTROL.key) -> str | None:
        body = self.s3.get_object(Bucket=CONTROL.bucket, Key=key)["Body"].read()
        generation: str | None = json.loads(body)["generation"]
        return generation

    def schedules(self) -> list[dict[str, Any]]:
        listed = self.scheduler.list_schedules(GroupName="trading")["Schedules"]
        return [self.scheduler.get_schedule(Name=each["Name"], GroupName="trading") for each in listed]

    def _of(self, run_id: str) -> Any:
        jobs = glue_backends[DEFAULT_ACCOUNT_ID]["us-east-1"].jobs.values()
        return next(run for job in jobs for run in job.job_runs if run.job_run_id == run_id)

    def _stop(self, params, **_: Any) -> tuple[Any, dict[str, Any]]:
        ids = json.loads(params["body"])["JobRunIds"]
        self.stopped += ids
        for each in ids:
            self.turn(each, self.stopping_state)
        return SimpleNamespace(status_code=200), {"SuccessfulSubmissions": [], "Errors": []}


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.plan: list[tuple[float, Any]] = []

    def at(self, second: float, what: Any) -> None:
        self.plan.append((second, what))

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds
        due = [each for each in self.plan if each[0] <= self.now]
        self.plan = [each for each in self.plan if each[0] > self.now]
        for _, what in due:
            what()
