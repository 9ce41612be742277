"""The deployed hand-over on a bad day of Glue: nothing late, throttled or stuck makes a second run, or leaves out a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from calve.errors import Fatal
from calve.outputs.job_status import place
from cli.embedded import aws
from tests.integration.support.deployed import CONFIG, Deployed, deployment
from tests.integration.support.engine import Engine
from tests.standins.hostile_glue.api import ACTIVE, FAILS, LASTS, Course, HostileApi

pytestmark = pytest.mark.long
ATTEMPTS = 4
"""What a function's client tries (`lambdas.job_control.handler`)."""
TIMEOUT_S = 75
"""Of the functions; 30 s of it are kept for the answer to CloudFormation."""


@dataclass
class BadDay:
    """A deployment whose functions for the hand-over ask Glue through the API of a bad day."""

    deployed: Deployed
    api: HostileApi
    functions: dict[str, str]

    @property
    def definition(self) -> dict[str, str]:
        job = self.deployed.client("glue").get_job(JobName=self.deployed.job)["Job"]
        return dict(job["DefaultArguments"])

    def control(self) -> dict[str, Any]:
        bucket, _, key = self.definition["--control"].removeprefix("s3://").partition("/")
        return dict(json.loads(self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()))

    def ask(self, function: str) -> dict[str, Any]:
        """Send what CloudFormation sends at an update; what the function answers it."""
        bucket, _, key = self.definition["--control"].removeprefix("s3://").partition("/")
        stack = self.deployed.client("cloudformation").describe_stacks(
            StackName=f"{self.deployed.name}-ingest"
        )
        answer = {"Bucket": self.deployed.engine.stack.bucket, "Key": "badday/answer"}
        event = {
            "RequestType": "Create",
            "ResponseURL": self._s3.generate_presigned_url("put_object", Params=answer),
            "StackId": stack["Stacks"][0]["StackId"],
            "RequestId": "asked",
            "ResourceType": "Custom::CalveHandOver",
            "LogicalResourceId": "HandOver",
            "ServiceToken": "",
            "ResourceProperties": {
                "JobName": self.deployed.job,
                "Continuous": "true",
                "ControlBucket": bucket,
                "ControlKey": key,
                "StatusKey": self.report[1],
                "Generation": self.definition["--generation"],
            },
        }
        self.deployed.client("lambda").invoke(
            FunctionName=self.functions[function], Payload=json.dumps(event).encode()
        )
        return dict(json.loads(self._s3.get_object(**answer)["Body"].read()))

    def start(self, generation: str) -> str:
        """Start a run of a generation; its id."""
        glue = aws.client("glue", self.api.url)
        run = glue.start_job_run(JobName=self.deployed.job, Arguments={"--generation": generation})
        return str(run["JobRunId"])

    @property
    def report(self) -> tuple[str, str]:
        return report_of(self.deployed)

    @property
    def _s3(self) -> Any:
        return self.deployed.client("s3")


def report_of(deployed: Deployed) -> tuple[str, str]:
    root = f"s3://{deployed.bucket}"
    return deployed.bucket, place(root, deployed.name, "main").removeprefix(f"{root}/")


@pytest.fixture(scope="module")
def day(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BadDay]:
    deployed = deployment(engine, tmp_path_factory.mktemp("badday"), "badday")
    deployed.deploy()
    functions = deployed.client("lambda")
    found = {
        each["Handler"].rpartition(".")[2]: each["FunctionName"]
        for page in functions.get_paginator("list_functions").paginate()
        for each in page["Functions"]
        if each["FunctionName"].startswith("badday-") and each["Handler"].startswith("lambdas.job_control.")
    }
    with HostileApi(engine.stack.aws_endpoint, report_of(deployed)) as api:
        for name in found.values():
            given = functions.get_function_configuration(FunctionName=name).get("Environment", {})
            ours = {"AWS_ENDPOINT_URL_GLUE": api.url}
            functions.update_function_configuration(
                FunctionName=name,
                Timeout=TIMEOUT_S,
                Environment={"Variables": given.get("Variables", {}) | ours},
            )
        yield BadDay(deployed, api, found)


def test_a_start_that_is_throttled_and_answered_late_makes_one_run(day: BadDay) -> None:
    day.api.begin(Course(throttled=2, late_s=8))
    answer = day.ask("handle")
    assert answer["Status"] == "SUCCESS", answer
    assert list(day.api.runs.values()) == ["RUNNING"]
    assert day.api.asked["StartJobRun"] > 2


def test_an_api_that_always_refuses_is_asked_a_few_times_and_named(day: BadDay) -> None:
    day.api.begin(Course(throttled=1000))
    answer = day.ask("handle")
    assert answer["Status"] == "FAILED"
    assert "ThrottlingException" in answer["Reason"]
    assert set(day.api.asked.values()) == {ATTEMPTS}
    assert day.api.runs == {}


def test_a_run_that_glue_does_not_stop_is_asked_to_stop_once_and_left_to_the_watchdog(day: BadDay) -> None:
    day.api.begin(Course(states=LASTS))
    old = day.start("g0")
    answer = day.ask("handle")
    assert answer["Status"] == "SUCCESS", answer
    assert day.api.runs == {old: "STOPPING"}
    assert day.api.asked["BatchStopJobRun"] == 1
    assert day.control() == {"generation": day.definition["--generation"], "left": [old]}


def test_a_run_that_fails_fails_the_deploy_with_its_reason_and_the_old_generation_is_started(
    day: BadDay,
) -> None:
    before = day.definition["--generation"]
    day.api.begin(Course(states=FAILS, error="Connection refused: brokers of badday"))
    changed = CONFIG.format(name=day.deployed.name, topic=day.deployed.topic).replace("1s", "2s")
    day.deployed.config.write_text(changed)
    with pytest.raises(Fatal) as failed:
        day.deployed.deploy()
    said = " ".join(str(failed.value).split())
    assert re.search(r"run \S+ ended as FAILED before; it says: Connection refused: brokers of badday", said)
    assert day.definition["--generation"] == before
    assert len(day.api.runs) == 2
    assert not [state for state in day.api.runs.values() if state not in (*ACTIVE, "FAILED")]
