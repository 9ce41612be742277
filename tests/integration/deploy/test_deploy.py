"""calve.yaml, deployed by the CDK CLI: what is deployed is what runs, and its data outlives it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calve.errors import Fatal
from calve.names import TableName
from cli.console import Console
from cli.embedded.cdk import App
from cli.embedded.stack import Stack
from cli.main import app
from cli.progress import LineProgress
from cli.run.jobs import run_deployed
from tests.integration.support.deployed import Deployed, deployment, destroy, diff
from tests.integration.support.engine import Engine, everything, trades, until
from tests.integration.support.exporting import Deployment
from tests.integration.support.homes import rest_home
from tests.integration.support.servers.rest_catalogs import CLIENT, SECRET

QUIET = LineProgress(lambda _: None)
NOTHING = "Number of stacks with differences: 0"


def test_right_after_a_deploy_nothing_is_left_to_deploy(weekly: Deployment) -> None:
    assert NOTHING in diff(weekly.app, QUIET)
    planned = weekly.calve("plan", "--offline")
    # A stack that was up before may hold tables of earlier deployments ("-").
    assert {each["name"] for each in planned["changes"] if each["kind"] in ("+", "~")} == set()
    same = {each["section"] for each in planned["changes"] if each["kind"] == "="}
    assert same == {"lake", "jobs", "tables", "exports"}
    assert planned["cost"]["before"] == planned["cost"]["after"] > 0


def test_a_refused_configuration_is_shown_as_the_app_words_it(stack: Stack, tmp_path: Path) -> None:
    config = tmp_path / "calve.yaml"
    config.write_text("name: refused\ntables:\n  t: {topic: t, colour: red}\n")
    with pytest.raises(Fatal, match=r"(?s)cdk diff failed.*colour"):
        diff(App(stack, config), QUIET)


@pytest.mark.long
def test_a_destroy_ends_the_job_and_keeps_its_data_and_the_next_deploy_goes_on_from_the_position(
    engine: Engine, tmp_path: Path
) -> None:
    kept = deployment(engine, tmp_path, "kept")
    kept.deploy()
    engine.produce(kept.topic, 100)
    with job_running(kept) as command:
        until(lambda: len(kept.rows()) == 100, seconds=120)
        destroy(kept.app, kept.progress)
        _, said = command.communicate(timeout=60)
    assert command.returncode == 0, said
    assert "job.handed_over" in said
    assert left(kept) == {"bucket", "database", "key"}
    assert kept.rows() == everything(100)
    assert any(file.startswith(f"{kept.database}/{kept.topic}") for file in kept.files())

    engine.produce(kept.topic, 50)
    kept.deploy()
    assert run_deployed(engine.stack, kept.job, Console(), drain=True, memory="1g", quick=True) == 0
    assert kept.rows() == everything(150)


@pytest.mark.long
def test_a_destroy_with_both_keys_leaves_nothing_at_all(engine: Engine, tmp_path: Path) -> None:
    gone = deployment(engine, tmp_path, "gone", exports=True)
    gone.deploy()
    engine.produce(gone.topic, 10)
    assert run_deployed(engine.stack, gone.job, Console(), drain=True, memory="1g", quick=True) == 0
    engine.spark.sql(f"CREATE TABLE lake.{gone.database}.made_by_hand (id BIGINT) USING iceberg")
    gone.deploy(delete_data=f"yes-delete-{gone.name}")
    assert gone.rows() == everything(10)
    destroy(gone.app, gone.progress)
    assert left(gone) == set()


@pytest.mark.long
def test_a_lake_in_a_shared_bucket_needs_no_right_beyond_its_prefix(engine: Engine, tmp_path: Path) -> None:
    guest = deployment(
        engine, tmp_path, "guest", lake="lake: {{bucket: company-lake, prefix: teams/guest}}\n"
    )
    guest.client("s3").create_bucket(Bucket="company-lake")
    guest.deploy()
    engine.produce(guest.topic, 100)
    for job, drain in ((guest.job, True), (f"{guest.job}-maintenance", False)):
        assert run_deployed(engine.stack, job, Console(), drain=drain, memory="1g", quick=True) == 0
    assert guest.rows() == everything(100)
    destroy(guest.app, guest.progress)


@contextmanager
def job_running(deployed: Deployed) -> Iterator[subprocess.Popen[str]]:
    """`calve run-job`, until it is told to end."""
    with subprocess.Popen(
        [sys.executable, "-m", "cli.main", "run-job", deployed.job, "--memory", "1g"],
        cwd=deployed.engine.stack.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            yield command
        finally:
            command.terminate()


def left(deployed: Deployed) -> set[str]:
    """What an account still holds of a deployment, by kind."""
    name = deployed.name

    def named(service: str, operation: str, key: str, field: str) -> list[str]:
        found = getattr(deployed.client(service), operation)()[key]
        return [each[field] if field else each for each in found]

    listed = {
        "bucket": named("s3", "list_buckets", "Buckets", "Name"),
        "database": named("glue", "get_databases", "DatabaseList", "Name"),
        "job": named("glue", "get_jobs", "Jobs", "Name"),
        "function": named("lambda", "list_functions", "Functions", "FunctionName"),
        "role": named("iam", "list_roles", "Roles", "RoleName"),
        "rule": named("events", "list_rules", "Rules", "Name"),
        "schedule": named("scheduler", "list_schedules", "Schedules", "GroupName"),
        "topic": named("sns", "list_topics", "Topics", "TopicArn"),
        "table of links": named("dynamodb", "list_tables", "TableNames", ""),
        "secret": named("secretsmanager", "list_secrets", "SecretList", "Name"),
        "alarm": named("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
        "log": named("logs", "describe_log_groups", "logGroups", "logGroupName"),
        "stack": [
            each["StackName"]
            for each in deployed.client("cloudformation").describe_stacks()["Stacks"]
            if each["StackStatus"] != "DELETE_COMPLETE"
        ],
        "key": named("kms", "list_aliases", "Aliases", "AliasName"),
    }
    return {
        kind
        for kind, names in listed.items()
        if any(re.search(rf"(^|[/:]){name}($|[-_/])", each) for each in names)
    }


@pytest.mark.long
def test_a_deployment_whose_tables_a_rest_catalog_holds(engine: Engine, tmp_path: Path) -> None:
    """Its roles have no right to Glue's tables: job, maintenance, export, commands and doctor know the other home."""
    with rest_home(engine, tmp_path) as (home, gate):
        lake = f"lake: {{{{catalog: {{{{type: rest, uri: '{gate.url}', secret: 'aws:polaris/client'}}}}}}}}\n"
        made = deployment(engine, tmp_path, "home", exports=True, lake=lake)
        client = json.dumps({"client_id": CLIENT, "client_secret": SECRET})
        made.client("secretsmanager").create_secret(Name="polaris/client", SecretString=client)
        made.deploy()
        day = datetime.now(UTC) - timedelta(days=2)
        for row in trades(100):
            engine.send(made.topic, engine.encode(made.topic, row), at_ms=int(day.timestamp() * 1000))
        engine.flush()
        for job in (made.job, f"{made.job}-maintenance"):
            assert (
                run_deployed(engine.stack, job, Console(), drain=job == made.job, memory="1g", quick=True)
                == 0
            )
        name = TableName(made.database, made.topic)
        assert made.rows() == []
        (table,) = [home.lake.load(name)]
        assert table is not None
        assert table.rows.count() == 100
        assert str(table.java.location()).startswith(f"s3://{made.bucket}/{made.database}")

        def calve(*words: str) -> Any:
            asked = [*words, "--config", str(made.config), "--output", "json"]
            done = CliRunner().invoke(app, asked)
            assert done.exit_code == 0, done.output
            return json.loads(done.stdout)

        assert calve("verify", made.topic)["ok"]
        assert calve("query", f"select count(*) as n from {made.topic}") == [{"n": 100}]
        assert {each["kind"] for each in calve("plan", "--offline")["changes"]} == {"="}
        (written,) = calve("export", "run", "weekly_trades", "--window", f"{day:%Y-%m-%d}..{day:%Y-%m-%d}")[
            "windows"
        ]
        assert written["rows"] == 100
        found = {each["check"]: each["state"] for each in calve("doctor", "--remote")}
        assert found["catalog"] == "ok"
        made.deploy(delete_data=f"yes-delete-{made.name}")
        destroy(made.app, made.progress)
        assert left(made) == set()
