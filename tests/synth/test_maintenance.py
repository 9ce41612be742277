import json

import pytest

from tests.synth.conftest import text
from tests.synth.test_lake import statements

STACK = "trading-maintenance"


@pytest.fixture
def jobs(synthesized):
    return {each["Name"]: each for each in synthesized.find(STACK, "AWS::Glue::Job").values()}


def test_each_job_has_one_that_looks_after_its_tables_and_ends(jobs):
    assert set(jobs) == {"trading-main-maintenance", "trading-nightly-maintenance"}
    for name, each in jobs.items():
        assert each["Command"]["Name"] == "glueetl"
        assert (each["WorkerType"], each["NumberOfWorkers"], each["Timeout"]) == ("G.1X", 2, 120)
        assert (each["MaxRetries"], each["ExecutionProperty"]) == (0, {"MaxConcurrentRuns": 1})
        assert "Connections" not in each
        arguments = each["DefaultArguments"]
        assert text(arguments["--warehouse"]) == "s3://trading-lake-<AccountId>-<Region>"
        assert text(arguments["--extra-files"]).endswith("/" + arguments["--settings-file"])
        assert arguments["--custom-logGroup-prefix"] == f"/calve/trading/{name.removeprefix('trading-')}"


def test_it_starts_every_six_hours(synthesized, jobs):
    schedules = synthesized.find(STACK, "AWS::Scheduler::Schedule").values()
    assert {each["ScheduleExpression"] for each in schedules} == {"rate(6 hours)"}
    started = [json.loads(text(each["Target"]["Input"])) for each in schedules]
    assert sorted(each["job"] for each in started) == sorted(jobs)


def test_it_may_reach_tables_that_are_there_and_nothing_else(synthesized):
    found = list(statements(synthesized.templates[STACK]))
    actions = {action for each in found for action in each["Action"]}
    assert {action.partition(":")[0] for action in actions} == {
        "s3",
        "glue",
        "kms",
        "logs",
        "cloudwatch",
        "lambda",
    }
    assert {each for each in actions if each.startswith("glue:")} == {
        *("glue:GetDatabase", "glue:GetTable", "glue:GetTables", "glue:UpdateTable")
    }
    deleting = [each for each in found if "s3:DeleteObject" in each["Action"]]
    assert {text(one) for each in deleting for one in each["Resource"]} == {
        "arn:<Partition>:s3:::trading-lake-<AccountId>-<Region>/trading/*"
    }
