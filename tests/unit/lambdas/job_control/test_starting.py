"""A job is started as it is deployed, whatever else the one who starts it sends."""

import ast
from pathlib import Path

import pytest

from calve.errors import ConfigError, Retryable
from lambdas.job_control import handler
from tests.alarms import failed
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.job_control.world import JOB

FOLDER = Path(handler.__file__).parents[1]


@pytest.fixture
def deployed(world, monkeypatch):
    monkeypatch.setenv("JOBS", f"{JOB},{JOB}-maintenance")
    handler._client.cache_clear()
    yield world
    handler._client.cache_clear()


def test_a_run_is_started_with_the_arguments_that_are_deployed(deployed) -> None:
    answer = handler.start({"job": JOB}, Context())
    assert answer == {"run": deployed.newest().job_run_id}
    assert deployed.newest().arguments == deployed.glue.get_job(JobName=JOB)["Job"]["DefaultArguments"]


def test_a_job_without_generations_is_started_without_arguments(deployed) -> None:
    deployed.glue.create_job(Name=f"{JOB}-maintenance", Role="role", Command={"Name": "glueetl"})
    run = handler.start({"job": f"{JOB}-maintenance"}, Context())["run"]
    started = deployed.glue.get_job_run(JobName=f"{JOB}-maintenance", RunId=run)["JobRun"]
    assert not started.get("Arguments")


def test_a_start_beside_a_run_in_progress_fails_and_is_told(deployed) -> None:
    deployed.run()
    with pytest.raises(Retryable, match=f"no run of {JOB} now"):
        handler.start({"job": JOB}, Context())
    assert len(deployed.states()) == 1
    assert failed("start-errors", "Start")


@pytest.mark.parametrize(
    "event",
    [
        {"job": "another"},
        {"job": f"{JOB}-maintenance"},  # it is not deployed
        {},
        {"job": JOB, "arguments": {"--scriptLocation": "s3://lake/trading/a.py"}},
    ],
)
def test_what_is_no_job_or_more_than_a_job_starts_nothing(deployed, event) -> None:
    with pytest.raises(ConfigError, match="does not name a job") as caught:
        handler.start(event, Context())
    assert f"{JOB}, {JOB}-maintenance" in str(caught.value.fix)
    assert deployed.states() == {}


def test_functions_start_jobs_in_one_place_and_by_the_generation_alone() -> None:
    calls = [
        node
        for file in FOLDER.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "start_job_run"
    ]
    assert [[each.arg for each in call.keywords] for call in calls] == [["JobName", "Arguments"]]
    assert "{GENERATION: generation} if generation else {}" in (FOLDER / "job_control/jobs.py").read_text()
