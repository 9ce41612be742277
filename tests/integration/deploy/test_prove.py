"""`calve prove` in the emulator: it sees what is there, it sees what is missing, and it leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from cli import lake
from cli.embedded import aws
from cli.embedded.cdk import App
from cli.embedded.stack import Stack
from cli.main import app as calve
from cli.prove import checks, command, watching
from cli.prove.scene import KINDS, PREFIX, Scene, left
from tests.integration.support.engine import until

STATES = ("proved", "failed", "not checked")
NOT_HERE = {"the job acknowledges", "rows by Athena", "log lines", "metrics", "watchdog"}
"""What the emulator cannot show."""


def without_a_row(scene: Scene) -> str:
    [_, users] = scene.job.tables
    table = lake.load(lake.open_catalog(scene.job.lake), scene.job.table_name(users))
    assert table
    table.delete("regionid == 'Region_1'")
    return checks.rows(scene)


def without_a_log_group(scene: Scene) -> str:
    name = next(each.id for each in watching.made_of(scene, "AWS::Logs::LogGroup", "maintenance"))
    scene.client("logs").delete_log_group(logGroupName=name)
    return watching.log_groups(scene)


def without_a_filter(scene: Scene) -> str:
    group = watching.job_log(scene)
    [lag] = [
        each["filterName"]
        for each in scene.client("logs").describe_metric_filters(logGroupName=group)["metricFilters"]
        if each["metricTransformations"][0]["metricName"] == "Lag.main"
    ]
    scene.client("logs").delete_metric_filter(logGroupName=group, filterName=lag)
    return watching.metric_filters(scene)


def with_a_closed_link(scene: Scene) -> str:
    table = scene.output("exports", "LinksTable")
    dynamodb = scene.client("dynamodb")
    for each in dynamodb.scan(TableName=table)["Items"]:
        dynamodb.delete_item(TableName=table, Key={"id": each["id"]})
    return watching.download(scene)


PLANTED = {
    "a row is deleted": (without_a_row, "users: "),
    "verify, without that row": (
        checks.verified,
        "users: coverage: records in neither the table nor the dead letters",
    ),
    "a log group is deleted": (without_a_log_group, "missing: /calve/"),
    "a filter is deleted": (without_a_filter, "missing: Lag.main"),
    "the links are gone": (with_a_closed_link, "of the mail's link is answered with 4"),
}


@pytest.mark.long
def test_what_is_there_is_proved_and_what_is_missing_fails_and_a_stack_that_stays_is_destroyed_later(
    stack: Stack, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark  # else verifying starts a JVM that later tests of this process could not use
    planted = {name: check for name, (check, _) in PLANTED.items()}
    monkeypatch.setattr(command, "CHECKS", command.CHECKS | planted)
    with monkeypatch.context() as broken:
        broken.setattr(App, "destroy", lambda *_: None)
        broken.setattr("cli.prove.scene.PATIENCE_HERE_S", 20.0)
        code, states, text = proved(tmp_path)
    assert code == 1
    assert aws.ACCOUNT not in text
    expected = dict.fromkeys([command.DEPLOYED, *command.CHECKS], "proved")
    expected |= dict.fromkeys(NOT_HERE, "not checked") | dict.fromkeys(planted, "failed")
    assert {name: state for name, (state, _) in states.items()} == expected | {command.DESTROYED: "failed"}
    for name, (_, said) in PLANTED.items():
        assert said in states[name][1]
    [name] = left()
    assert f"{name}-lake" in states[command.DESTROYED][1]

    done = CliRunner().invoke(calve, ["prove", "--clean"])
    assert done.exit_code == 0, done.output
    assert left() == {}
    assert named(stack) == set()


@pytest.mark.long
def test_an_interruption_destroys_what_was_deployed(stack: Stack) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "cli.main", "prove"],
        cwd=stack.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as command_:
        try:
            until(lambda: any(PREFIX in each for each in named(stack)), seconds=120)
            command_.send_signal(signal.SIGINT)
            said, _ = command_.communicate(timeout=300)
        finally:
            command_.terminate()
    assert command_.returncode == 130, said
    assert "interrupted" in said
    assert left() == {}
    assert named(stack) == set()


def proved(folder: Path) -> tuple[int, dict[str, tuple[str, str]], str]:
    """`calve prove`: exit code, the state and evidence of each check in the report, the report."""
    report = folder / "report.md"
    done = CliRunner().invoke(calve, ["prove", "--report", str(report)])
    text = report.read_text()
    cells = (line.strip("| ").split(" | ") for line in text.splitlines() if line.count("|") == 5)
    return done.exit_code, {each[0]: (each[1], each[2]) for each in cells if each[1] in STATES}, text


def named(stack: Stack) -> set[str]:
    """What the emulator has of any throw-away deployment."""
    cloudformation = aws.client("cloudformation", stack.aws_endpoint)
    found = {
        each["StackName"]
        for each in cloudformation.describe_stacks()["Stacks"]
        if each["StackStatus"] != "DELETE_COMPLETE"
    }
    for service, operation, key, field in KINDS.values():
        if service != "cloudformation":
            answer = getattr(aws.client(service, stack.aws_endpoint), operation)()
            found |= {each[field] if field else each for each in answer.get(key, [])}
    return {each for each in found if PREFIX in each or PREFIX.replace("-", "_") in each}
