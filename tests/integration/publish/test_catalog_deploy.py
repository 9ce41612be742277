"""calve.yaml with `publish.iceberg_rest`, deployed: commits reach the catalog, and nothing of it is left where it ends."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from calve.outputs.origins import Origins
from calve.table.summary import ORIGINS
from cli.console import Console
from cli.embedded import aws
from cli.embedded.stack import Stack
from cli.run.jobs import run_deployed
from lambdas.delta.log import DeltaLog
from lambdas.followers import read as read_metadata
from lambdas.publish_states import State
from tests.integration.support.deployed import deployment, destroy
from tests.integration.support.engine import Engine, until
from tests.integration.support.published import PROGRESS, Deployed
from tests.integration.support.readers import OF_DELTA
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
from tests.standins import openlineage
from tests.standins.openlineage import KEY, Receiver

USERS = "  users: {topic: users}"


@pytest.fixture
def published(stack: Stack, tmp_path: Path) -> Iterator[Published]:
    with behind_oauth(stack, tmp_path / "catalog") as made:
        yield made


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with openlineage.serving() as made:
        yield made


@pytest.mark.long
def test_a_commit_reaches_every_target_and_the_end_of_a_deployment_leaves_what_was_there(
    published: Published, tmp_path: Path, receiver: Receiver
) -> None:
    reader = published.reader()
    reader.create_namespace("before")
    settings = {"uri": published.uri, "namespace": "market", "secret": "aws:NAME/catalog", "scope": SCOPE}
    lineage = {"url": receiver.url, "secret": "aws:NAME/catalog"}
    targets = {"iceberg_rest": settings, "delta": {}, "openlineage": lineage}
    deployed = Deployed(published, tmp_path, targets)
    deployed.keep({"client_id": CLIENT, "client_secret": SECRET, "api_key": KEY})
    trades, users = published.table("trades"), published.table("users")
    deployed.deploy(USERS)
    assert deployed.are(State.PENDING, "trades")

    with trades.transaction() as change:
        change.set_properties({ORIGINS: Origins("trades", "broker:9092", {}, {}).to_json()})
    deployed.announce("trades")
    until(lambda: deployed.are(State.SYNCED, "trades"), seconds=60)
    assert len(reader.load_table(("market", "trades")).scan().to_arrow()) == 3
    assert published.duckdb().sql("select count(*) from published.market.trades").fetchone() == (3,)
    assert as_delta(published, trades) == {3}
    (event,) = receiver.of(f"{published.database}.trades")
    assert [each["name"] for each in event["inputs"]] == ["trades"]
    append(trades)
    deployed.announce("trades")
    until(lambda: len(reader.load_table(("market", "trades")).scan().to_arrow()) == 6, seconds=60)
    until(lambda: as_delta(published, trades) == {6}, seconds=60)

    deployed.reconcile()
    assert reader.load_table(("market", "users")).metadata_location == users.metadata_location
    assert as_delta(published, users) == {3}

    assert deployed.planned() == {("=", False)}
    deployed.write()
    assert deployed.planned() == {("~", True), ("~", False)}
    deployed.deploy()  # users are published no more
    with pytest.raises(NoSuchTableError):
        reader.load_table(("market", "users"))
    assert len(users.refresh().scan().to_arrow()) == 3
    assert deployed.states_of("users") == [None, None, None]
    s3 = deployed.client("s3")
    assert DeltaLog(s3, users.location()).read().version == -1

    destroy(deployed.app, PROGRESS)
    with pytest.raises(NoSuchNamespaceError):
        reader.load_namespace_properties("market")
    assert reader.list_namespaces() == [("before",)]
    assert len(trades.refresh().scan().to_arrow()) == 6
    assert DeltaLog(s3, trades.location()).read().version == -1


def as_delta(published: Published, table: Table) -> set[int]:
    """The number of rows that readers of Delta find."""
    return {len(read(published.lake(), table.location())) for read in OF_DELTA.values()}


@pytest.mark.long
def test_polaris_is_set_up_by_the_deploy_and_told_of_commits_and_cleared_away(
    stack: Stack, tmp_path: Path
) -> None:
    polaris = Polaris(read=lambda location: read_metadata(aws.client("s3", stack.aws_endpoint), location))
    with Serving(polaris) as serving, OAuthGate(serving.url) as nobody:
        published = Published(stack, f"polaris_{uuid.uuid4().hex[:8]}", serving.url, nobody)
        settings = {
            "uri": f"{serving.url}{CATALOG}",
            "warehouse": "lakehouse",
            "bootstrap": {"secret": "aws:NAME/catalog"},
        }
        deployed = Deployed(published, tmp_path, {"iceberg_rest": settings})
        deployed.keep(ADMIN)
        trades = published.table("trades")
        deployed.deploy()
        (principal,) = (key[1] for key in polaris.things if key[0] == "principals")
        assert polaris.may(polaris.things["principals", principal]["clientId"]) == {"lakehouse"}

        deployed.announce("trades")
        until(lambda: deployed.are(State.SYNCED, "trades"), seconds=60)
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
