"""calve.yaml with `publish.iceberg_rest`, deployed: commits reach the catalog, and nothing of it is left where it ends."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from typer.testing import CliRunner

from calve.outputs.announcement import COMMITTED, SOURCE
from cli.console import Console
from cli.embedded import aws
from cli.embedded.cdk import App
from cli.embedded.stack import Stack
from cli.main import app as calve
from cli.progress import LineProgress
from cli.run.jobs import run_deployed
from lambdas.lake_tables import read
from lambdas.publish_states import PublishState, PublishStates, State, Target
from tests.integration.support.deployed import deployment, destroy
from tests.integration.support.engine import Engine, until
from tests.integration.support.servers.rest_catalogs import (
    CLIENT,
    SCOPE,
    SECRET,
    OAuthGate,
    Published,
    append,
    behind_oauth,
)
from tests.polaris import ADMIN, CATALOG, Polaris, Serving

PROGRESS = LineProgress(lambda line: print(line, file=sys.__stderr__, flush=True))
CONFIG = """\
name: {name}
lake: {{bucket: {bucket}, prefix: published, database: {database}, import_database: true}}
tables:
  trades: {{topic: trades}}
{more}
publish:
  iceberg_rest: {catalog}
"""
USERS = "  users: {topic: users}"


@pytest.fixture
def published(stack: Stack, tmp_path: Path) -> Iterator[Published]:
    with behind_oauth(stack, tmp_path / "catalog") as made:
        yield made


class Deployed:
    """The stacks of one configuration."""

    def __init__(
        self, published: Published, folder: Path, catalog: dict[str, Any], secret: dict[str, str]
    ) -> None:
        self.published = published
        self.name = published.database.replace("_", "-")
        self.config = folder / "calve.yaml"
        self.catalog = json.dumps(catalog).replace("NAME", self.name)
        client = self.client("secretsmanager")
        client.create_secret(Name=f"{self.name}/catalog", SecretString=json.dumps(secret))

    def deploy(self, more: str = "") -> None:
        self.write(more)
        self.outputs = self.app.deploy(PROGRESS)

    def write(self, more: str = "") -> None:
        text = CONFIG.format(
            name=self.name,
            bucket=self.published.stack.bucket,
            database=self.published.database,
            catalog=self.catalog,
            more=more,
        )
        self.config.write_text(text)

    def planned(self) -> tuple[str, bool]:
        """What a deploy would change of the catalog, and whether that breaks something."""
        done = CliRunner().invoke(
            calve, ["plan", "--offline", "--config", str(self.config), "--output", "json"]
        )
        assert done.exit_code == 0, done.output
        (found,) = (each for each in json.loads(done.stdout)["changes"] if each["section"] == "publish")
        return found["kind"], found["breaking"]

    @property
    def app(self) -> App:
        return App(self.published.stack, self.config)

    @property
    def states(self) -> PublishStates:
        name = self.outputs[f"{self.name}-publish"]["PublishStatesTable"]
        return PublishStates(name, self.client("dynamodb"))

    def state(self, table: str) -> PublishState | None:
        return self.states.find(Target.ICEBERG_REST, f"{self.published.database}.{table}")

    def is_synced(self, table: str) -> bool:
        found = self.state(table)
        return found is not None and found.state is State.SYNCED

    def client(self, service: str) -> Any:
        return aws.client(service, self.published.stack.aws_endpoint)

    def announce(self, table: str) -> None:
        detail = {"deployment": self.name, "database": self.published.database, "table": table}
        entry = {"Source": SOURCE, "DetailType": COMMITTED, "Detail": json.dumps(detail)}
        assert self.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0

    def reconcile(self) -> None:
        functions = self.client("lambda").list_functions()["Functions"]
        (name,) = (
            each["FunctionName"]
            for each in functions
            if each["FunctionName"].startswith(f"{self.name}-publish") and "Reconcile" in each["FunctionName"]
        )
        answer = self.client("lambda").invoke(FunctionName=name, Payload=b"{}")
        assert "FunctionError" not in answer, answer["Payload"].read()


@pytest.mark.long
def test_a_commit_reaches_the_catalog_and_the_end_of_a_deployment_leaves_what_was_there(
    published: Published, tmp_path: Path
) -> None:
    reader = published.reader()
    reader.create_namespace("before")
    settings = {"uri": published.uri, "namespace": "market", "secret": "aws:NAME/catalog", "scope": SCOPE}
    deployed = Deployed(published, tmp_path, settings, {"client_id": CLIENT, "client_secret": SECRET})
    trades, users = published.table("trades"), published.table("users")
    deployed.deploy(USERS)
    pending = deployed.state("trades")
    assert pending is not None
    assert pending.state is State.PENDING

    deployed.announce("trades")
    until(lambda: deployed.is_synced("trades"), seconds=60)
    assert len(reader.load_table(("market", "trades")).scan().to_arrow()) == 3
    assert published.duckdb().sql("select count(*) from published.market.trades").fetchone() == (3,)
    append(trades)
    deployed.announce("trades")
    until(lambda: len(reader.load_table(("market", "trades")).scan().to_arrow()) == 6, seconds=60)

    deployed.reconcile()
    assert reader.load_table(("market", "users")).metadata_location == users.metadata_location

    assert deployed.planned() == ("=", False)
    deployed.write()
    assert deployed.planned() == ("~", True)
    deployed.deploy()  # users are published no more
    with pytest.raises(NoSuchTableError):
        reader.load_table(("market", "users"))
    assert len(users.refresh().scan().to_arrow()) == 3
    assert deployed.state("users") is None

    destroy(deployed.app, PROGRESS)
    with pytest.raises(NoSuchNamespaceError):
        reader.load_namespace_properties("market")
    assert reader.list_namespaces() == [("before",)]
    assert len(trades.refresh().scan().to_arrow()) == 6


@pytest.mark.long
def test_polaris_is_set_up_by_the_deploy_and_told_of_commits_and_cleared_away(
    stack: Stack, tmp_path: Path
) -> None:
    polaris = Polaris(read=lambda location: read(aws.client("s3", stack.aws_endpoint), location))
    with Serving(polaris) as serving, OAuthGate(serving.url) as nobody:
        published = Published(stack, serving.url, nobody, f"polaris_{uuid.uuid4().hex[:8]}")
        settings = {
            "uri": f"{serving.url}{CATALOG}",
            "warehouse": "lakehouse",
            "bootstrap": {"secret": "aws:NAME/catalog"},
        }
        deployed = Deployed(published, tmp_path, settings, ADMIN)
        trades = published.table("trades")
        deployed.deploy()
        (principal,) = (key[1] for key in polaris.things if key[0] == "principals")
        assert polaris.may(polaris.things["principals", principal]["clientId"]) == {"lakehouse"}

        deployed.announce("trades")
        until(lambda: deployed.is_synced("trades"), seconds=60)
        append(trades)
        deployed.announce("trades")
        tables = polaris.namespaces["lakehouse", published.database].tables
        until(lambda: tables["trades"][0] == trades.metadata_location, seconds=60)

        destroy(deployed.app, PROGRESS)
        assert (polaris.things, polaris.held, polaris.namespaces) == ({}, set(), {})
        assert polaris.secrets == {ADMIN["client_id"]: ADMIN["client_secret"]}


@pytest.mark.full
def test_what_a_job_commits_is_in_the_catalog_without_anybody_asking(engine: Engine, tmp_path: Path) -> None:
    with behind_oauth(engine.stack, tmp_path / "catalog") as published:
        made = deployment(engine, tmp_path, f"followed{uuid.uuid4().hex[:6]}")
        catalog = {"uri": published.uri, "secret": f"aws:{made.name}/catalog", "scope": SCOPE}
        section = json.dumps({"iceberg_rest": catalog})
        made.config.write_text(f"{made.config.read_text()}publish: {section}\n")
        secret = json.dumps({"client_id": CLIENT, "client_secret": SECRET})
        made.client("secretsmanager").create_secret(Name=f"{made.name}/catalog", SecretString=secret)
        made.deploy(delete_data=f"yes-delete-{made.name}")
        engine.produce(made.topic, 100)
        assert run_deployed(engine.stack, made.job, Console(), drain=True, memory="1g", quick=True) == 0

        reader, name = published.reader(), (made.database, made.topic)
        until(lambda: reader.table_exists(name), seconds=90)
        until(lambda: len(reader.load_table(name).scan().to_arrow()) == 100, seconds=60)
        destroy(made.app, made.progress)
        assert reader.list_namespaces() == []
