"""`calve keys`: what each secret is for, its age, its last and next change; nothing of what it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.secretsmanager.models import secretsmanager_backends
from typer.testing import CliRunner

from calve.config.deployment import Deployment, JobDeployment, KeyRotation, LakeDeployment
from calve.config.job import Job, Kafka, Lake, Registry, Table
from cli.account import Resource
from cli.act.keys import key_age, named
from cli.main import app

REGION, PASSWORD = "eu-north-1", "hunter2"
NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, REGION)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield boto3.client("secretsmanager")


def held(client: Any, name: str) -> Any:
    client.create_secret(Name=name, SecretString=json.dumps({"password": PASSWORD}))
    return secretsmanager_backends["123456789012"][REGION].secrets[name]


class Described:
    """Secrets Manager that says this of every secret."""

    class exceptions:
        class ResourceNotFoundException(Exception):
            pass

    def __init__(self, **said: Any) -> None:
        self.said = {"VersionIdsToStages": {"v1": ["AWSCURRENT"]}} | said

    def describe_secret(self, SecretId: str) -> dict[str, Any]:
        return self.said

    def list_secret_version_ids(self, SecretId: str, MaxResults: int) -> dict[str, Any]:
        version = {"VersionId": "v1", "VersionStages": ["AWSCURRENT"], "CreatedDate": NOW - timedelta(days=3)}
        return {"Versions": [version]}


def test_the_secrets_of_a_configuration_and_what_they_are_for() -> None:
    job = Job(
        "trading",
        "main",
        Kafka("b:1", "sasl_scram", secret="aws:kafka", emit_secret="aws:emit"),
        Registry("https://r", secret="aws:registry"),
        Lake("trading", "s3://lake"),
        (Table("a", "a"),),
        masking="aws:masking",
    )
    rotations = (KeyRotation("kafka", "aws:kafka", admin="aws:admin"),)
    deployment = Deployment("trading", (JobDeployment(job),), LakeDeployment("trading"), rotations=rotations)
    assert list(named(deployment)) == [
        ("kafka", "aws:kafka"),
        ("kafka, emit", "aws:emit"),
        ("masking", "aws:masking"),
        ("changes kafka", "aws:admin"),
        ("registry", "aws:registry"),
    ]


PUBLISHED = """
name: trading
kafka: {bootstrap_servers: "b:9092"}
registry: {url: https://r}
tables: {a: {topic: t}}
publish:
  snowflake: {account: o-a, user: deployer, secret: aws:snowflake}
  iceberg_rest: {uri: https://polaris/api/catalog, warehouse: trading, bootstrap: {secret: aws:polaris}}
"""


def test_the_secrets_of_who_tables_are_published_to(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.config.current", lambda _: None)
    stacks = {"trading-publish": ("SnowflakeKeyA1", "IcebergRestBootstrapB2")}
    for name in ("snowflake", *stacks["trading-publish"]):
        held(client, name)
    kind = "AWS::SecretsManager::Secret"
    monkeypatch.setattr(
        "cli.act.keys.resources", lambda _, stack: (Resource(kind, id, id) for id in stacks[stack])
    )
    file = tmp_path / "calve.yaml"
    file.write_text(PUBLISHED)
    document = json.loads(CliRunner().invoke(app, ["keys", "-c", str(file), "-o", "json"]).stdout)
    assert {each["use"]: each["state"] for each in document["keys"]} == {
        "snowflake, deploys": "by hand",
        "iceberg_rest, deploys": "absent",
        "snowflake": "by hand",
        "iceberg_rest": "by hand",
    }


@pytest.mark.usefixtures("client")
def test_without_secrets_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.config.current", lambda _: None)
    file = tmp_path / "calve.yaml"
    file.write_text(PUBLISHED.partition("publish:")[0])
    answer = CliRunner().invoke(app, ["keys", "-c", str(file)])
    assert answer.output.startswith("no secrets: the configuration names none")


def test_the_state_of_a_secret() -> None:
    rotating = {"RotationEnabled": True, "LastRotatedDate": NOW - timedelta(days=3)}
    later, earlier = NOW + timedelta(days=27), NOW - timedelta(hours=1)
    pending = {"v1": ["AWSCURRENT"], "v2": ["AWSPENDING"]}
    for said, state in (
        ({}, "by hand"),
        (rotating | {"NextRotationDate": later}, "ok"),
        (rotating | {"NextRotationDate": earlier}, "overdue"),
        (rotating | {"NextRotationDate": later, "VersionIdsToStages": pending}, "unfinished"),
        (rotating | {"VersionIdsToStages": {"v1": ["AWSCURRENT", "AWSPENDING"]}}, "ok"),
    ):
        found = key_age(Described(**said), "kafka", "aws:kafka", NOW)
        assert found.state == state
        assert found.created == NOW - timedelta(days=3)
    assert found.rotated == NOW - timedelta(days=3)
    assert key_age(Described(), "kafka", "file:/run/kafka.json", NOW).state == "elsewhere"


CONFIG = """
name: trading
kafka:
  bootstrap_servers: b:9092
  auth:
    type: sasl_scram
    secret: aws:trading/kafka
    emit_secret: aws:trading/emit
    rotate: {admin_secret: aws:trading/admin}
registry: {url: https://r, secret: aws:trading/registry}
tables: {a: {topic: t}}
"""


def test_the_command_shows_all_and_no_value(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.config.current", lambda _: None)
    for name in ("trading/kafka", "trading/emit", "trading/admin"):
        held(client, name)
    file = tmp_path / "calve.yaml"
    file.write_text(CONFIG)
    shown = CliRunner().invoke(app, ["keys", "--config", str(file)])
    assert shown.exit_code == 0, shown.output
    document = json.loads(CliRunner().invoke(app, ["keys", "-c", str(file), "-o", "json"]).stdout)
    states = {each["use"]: each["state"] for each in document["keys"]}
    assert states == {
        "kafka": "by hand",
        "kafka, emit": "by hand",
        "registry": "absent",
        "changes kafka": "by hand",
        "changes emit": "by hand",
    }
    assert "trading/kafka" in shown.output
    assert PASSWORD not in shown.output + json.dumps(document)
