"""The deployed watchdog, told how runs end.

Nobody but Glue may send EventBridge an event of Glue, and the emulated Glue sends none. So EventBridge is asked whether the
deployed rule takes an event, and the rule's targets are invoked with those it takes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.embedded import aws
from tests.integration.support.engine import until
from tests.integration.support.exporting import NAME, Deployment
from tests.integration.support.functions import Log, settings

JOB = f"{NAME}-idle"
OTHER_ENDS = ("SUCCEEDED", "TIMEOUT", "ERROR")


@dataclass
class Glue:
    """One deployed job whose runs end as a test says; they all have ended at once."""

    weekly: Deployment

    def __post_init__(self) -> None:
        self._glue = self.weekly.client("glue")
        self.group = settings(self.weekly, "Watchdog")["SCHEDULE_GROUP"]
        self.generation = self._glue.get_job(JobName=JOB)["Job"]["DefaultArguments"]["--generation"]

    def run(self, generation: str | None = None) -> str:
        """Start a run, by default of the deployed generation."""
        arguments = {"--generation": generation or self.generation}
        run: str = self._glue.start_job_run(JobName=JOB, Arguments=arguments)["JobRunId"]
        until(lambda: self._glue.get_job_run(JobName=JOB, RunId=run)["JobRun"]["JobRunState"] == "SUCCEEDED")
        return run

    def first(self) -> str:
        """A run before which no run of its generation has failed."""
        return self.run(f"before-{uuid.uuid4().hex}")

    def runs(self) -> list[str]:
        """The newest first."""
        return [each["Id"] for each in self._glue.get_job_runs(JobName=JOB)["JobRuns"]]

    def ends(self, run: str, state: str, job: str = JOB) -> int:
        """Have the deployed rules take the event that Glue sends of this; how many did."""
        event = {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Glue Job State Change",
            "source": "aws.glue",
            "account": aws.ACCOUNT,
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "region": aws.REGION,
            "resources": [],
            "detail": {
                "jobName": job,
                "severity": "INFO" if state in ("SUCCEEDED", "STOPPED") else "ERROR",
                "state": state,
                "jobRunId": run,
                "message": f"Job run is {state}",
            },
        }
        taken = 0
        for target in self._targets(json.dumps(event)):
            functions = self.weekly.client("lambda")
            answer = functions.invoke(FunctionName=target, Payload=json.dumps(event).encode())
            assert "FunctionError" not in answer
            taken += 1
        return taken

    def later(self) -> list[dict[str, Any]]:
        """The schedules by which the watchdog looks again."""
        scheduler = self.weekly.client("scheduler")
        found = scheduler.list_schedules(GroupName=self.group, NamePrefix="watchdog-")["Schedules"]
        return [scheduler.get_schedule(Name=each["Name"], GroupName=self.group) for each in found]

    def forget(self) -> None:
        for each in self.later():
            self.weekly.client("scheduler").delete_schedule(Name=each["Name"], GroupName=self.group)

    def _targets(self, event: str) -> Iterator[str]:
        events = self.weekly.client("events")
        for rule in events.list_rules(NamePrefix=f"{NAME}-ingest")["Rules"]:
            if events.test_event_pattern(EventPattern=rule["EventPattern"], Event=event)["Result"]:
                for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]:
                    yield target["Arn"]


@pytest.fixture(scope="module")
def deployed(weekly: Deployment) -> Glue:
    return Glue(weekly)


@pytest.fixture
def glue(deployed: Glue) -> Iterator[Glue]:
    yield deployed
    deployed.forget()


@pytest.mark.parametrize(
    "state", ["FAILED", *(pytest.param(each, marks=pytest.mark.full) for each in OTHER_ENDS)]
)
def test_a_run_that_ends_is_followed_by_one_of_the_deployed_code(glue: Glue, state: str) -> None:
    run, before = glue.first(), glue.runs()
    assert glue.ends(run, state) == 1
    assert glue.ends(run, state) == 1  # EventBridge delivers at least once
    (new,) = set(glue.runs()) - set(before)
    started = glue.weekly.client("glue").get_job_run(JobName=JOB, RunId=new)["JobRun"]
    assert started["Arguments"]["--generation"] == glue.generation
    assert glue.later() == []


@pytest.mark.parametrize(
    ("state", "taken"), [("STOPPED", 1), ("STARTING", 0), ("RUNNING", 0), ("STOPPING", 0)]
)
def test_a_run_that_an_operator_stops_or_that_goes_on_starts_nothing(
    glue: Glue, state: str, taken: int
) -> None:
    before = glue.runs()
    assert glue.ends(before[0], state) == taken  # the function knows which stopped runs a hand-over has left
    assert (glue.runs(), glue.later()) == (before, [])


def test_a_job_of_another_deployment_is_not_its_business(glue: Glue) -> None:
    before = glue.runs()
    assert glue.ends(before[0], "FAILED", job=f"other-{JOB}") == 0
    assert glue.runs() == before


def test_a_run_that_maintenance_ended_is_looked_at_again_when_glue_has_had_its_turn(glue: Glue) -> None:
    run, before = glue.first(), glue.runs()
    assert glue.ends(run, "EXPIRED") == glue.ends(run, "EXPIRED") == 1
    (look,) = glue.later()
    assert glue.runs() == before
    assert minutes_until(look) == pytest.approx(15, abs=0.5)
    glue.weekly.once(look["Target"])
    until(lambda: len(glue.runs()) == len(before) + 1)


@pytest.mark.full
def test_runs_that_fail_in_a_row_are_followed_ever_later_and_then_by_none(glue: Glue) -> None:
    log = Log(glue.weekly, "Watchdog")
    restarts = int(settings(glue.weekly, "Watchdog")["RESTARTS"])
    glue.ends(glue.first(), "FAILED")
    for failures in range(2, restarts + 1):
        glue.forget()
        run, before = glue.run(), glue.runs()
        assert glue.ends(run, "FAILED") == glue.ends(run, "FAILED") == 1
        (look,) = glue.later()
        assert minutes_until(look) == pytest.approx(2 ** (failures - 2), abs=0.2)
        assert glue.runs() == before
    glue.forget()
    run, before = glue.run(), glue.runs()
    assert glue.ends(run, "FAILED") == 1
    assert (glue.runs(), glue.later()) == (before, [])
    (metric,) = log.holding("WatchdogExhausted")
    assert json.loads(metric)["job"] == JOB


def test_people_start_a_job_as_it_is_deployed_and_with_nothing_of_theirs(glue: Glue) -> None:
    before, functions = glue.runs(), glue.weekly.client("lambda")

    def asked(**event: Any) -> dict[str, Any]:
        answer: dict[str, Any] = functions.invoke(FunctionName=f"{NAME}-start", Payload=json.dumps(event))
        return answer

    for more in ({"arguments": {"--scriptLocation": "s3://lake/a.py"}}, {"job": f"other-{JOB}"}):
        assert "FunctionError" in asked(**({"job": JOB} | more))
    assert glue.runs() == before
    run = json.loads(asked(job=JOB)["Payload"].read())["run"]
    assert [run, *before] == glue.runs()
    definition = glue.weekly.client("glue").get_job(JobName=JOB)["Job"]["DefaultArguments"]
    started = glue.weekly.client("glue").get_job_run(JobName=JOB, RunId=run)["JobRun"]["Arguments"]
    assert started.items() <= definition.items()


def test_a_schedule_starts_its_job_by_the_same_function(glue: Glue) -> None:
    job = f"{JOB}-maintenance"
    scheduler, jobs = glue.weekly.client("scheduler"), glue.weekly.client("glue")
    schedule = scheduler.get_schedule(Name=job, GroupName=f"{NAME}-maintenance")
    assert schedule["Target"]["Arn"].endswith(f":function:{NAME}-start")
    glue.weekly.once(schedule["Target"])
    until(lambda: jobs.get_job_runs(JobName=job)["JobRuns"])
    (run,) = jobs.get_job_runs(JobName=job)["JobRuns"]
    assert run.get("Arguments", {}).items() <= jobs.get_job(JobName=job)["Job"]["DefaultArguments"].items()


def minutes_until(schedule: dict[str, Any]) -> float:
    at = datetime.fromisoformat(schedule["ScheduleExpression"].removeprefix("at(").removesuffix(")"))
    return (at.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds() / 60
