"""The functions, as Lambda calls them, against Polaris' stand-in: from an empty server to an empty server."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from calve.names import TableName
from lambdas.catalog_sync import handler
from lambdas.catalog_sync import polaris as bootstrap
from lambdas.catalog_sync.handler import Wanted
from lambdas.publish_states import PublishStates, State, Target
from tests.alarms import embedded, failed, goes_off, put_aside
from tests.polaris import ADMIN
from tests.unit.lambdas.catalog_sync.conftest import TRADES, USERS, Deployment
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.states_table import NAME

OTHER = TableName("trading", "trades__dead_letters")


@pytest.fixture
def functions(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """The catalog is made, and two tables are published."""
    make = deployment.cloudformation.request("Create", deployment.bootstrap())
    bootstrap.handle(make, Context())
    create = deployment.cloudformation.request("Create", deployment.published(TRADES, USERS))
    handler.handle(create, Context())
    assert [each["Status"] for each in deployment.cloudformation.answers] == ["SUCCESS"] * 2
    monkeypatch.setenv("CATALOG", deployment.settings.to_json())
    monkeypatch.setenv("PUBLISHED_FILE", deployment.published()["PublishedFile"])
    monkeypatch.setenv("STATES_TABLE", NAME)
    for each in (handler._sync, handler._published, handler._client):
        each.cache_clear()
    return deployment


def feed(*names: TableName | str) -> list[str]:
    """Messages that tell of these tables; which of them are to come again."""
    records = [
        {
            "messageId": f"{number}-{name}",
            "body": name
            if isinstance(name, str)
            else json.dumps({"detail": {"database": name.database, "table": name.table}}),
        }
        for number, name in enumerate(names)
    ]
    answer = handler.feed({"Records": records}, Context())
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


def states() -> dict[str, State]:
    found = PublishStates(NAME, boto3.client("dynamodb")).all(Target.ICEBERG_REST)
    return {each.table.partition(".")[2]: each.state for each in found}


def test_from_nothing_to_nothing(functions: Deployment) -> None:
    assert states() == {"trades": State.PENDING, "users": State.PENDING}
    functions.commit(TRADES, 1)
    assert feed(TRADES, TRADES, OTHER) == []
    assert states() == {"trades": State.SYNCED, "users": State.PENDING}
    newest = functions.commit(TRADES, 2)
    assert feed(TRADES, USERS) == []
    assert functions.shown() == {"trades": newest}
    users = functions.commit(USERS, 1)
    handler.reconcile({}, Context())
    assert functions.shown() == {"trades": newest, "users": users}
    assert states() == {"trades": State.SYNCED, "users": State.SYNCED}

    properties = functions.published(TRADES)
    old = functions.published(TRADES, USERS)
    side = functions.cloudformation
    handler.handle(
        side.request("Update", properties, OldResourceProperties=old, PhysicalResourceId="x"), Context()
    )
    assert functions.shown() == {"trades": newest}

    handler.handle(side.request("Delete", properties, PhysicalResourceId="x"), Context())
    bootstrap.handle(side.request("Delete", functions.bootstrap(), PhysicalResourceId="x"), Context())
    assert [each["Reason"] for each in side.answers if each["Status"] == "FAILED"] == []
    polaris = functions.polaris
    assert (polaris.things, polaris.held, polaris.namespaces) == ({}, set(), {})
    assert polaris.secrets == {ADMIN["client_id"]: ADMIN["client_secret"]}
    assert states() == {}


def test_a_message_that_cannot_be_read_comes_again_and_the_others_are_followed(functions: Deployment) -> None:
    location = functions.commit(TRADES, 1)
    assert feed("nonsense", TRADES, '{"detail": {}}') == ["0-nonsense", '2-{"detail": {}}']
    assert functions.shown() == {"trades": location}


def test_a_message_comes_again_where_the_catalog_does_not_answer_and_not_where_it_refuses(
    functions: Deployment,
) -> None:
    functions.commit(TRADES, 1)
    reads, functions.polaris.read = functions.polaris.read, silent
    assert feed(TRADES) == ["0-trading.trades"]
    functions.polaris.read = reads
    storage = functions.polaris.things["catalogs", "lakehouse"]["storageConfigInfo"]
    storage["allowedLocations"] = ["s3://other"]
    functions.commit(TRADES, 2)
    assert feed(TRADES) == []
    row = PublishStates(NAME, boto3.client("dynamodb")).find(Target.ICEBERG_REST, str(TRADES))
    assert row is not None
    assert (row.state, "not in an allowed location" in (row.reason or "")) == (State.FAILED, True)


def test_a_table_that_cannot_be_made_equal_is_told(
    functions: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.commit(TRADES, 1)
    handler.reconcile({}, Context())
    of = {"function": Context().function_name}
    assert not goes_off("catalog-failed", embedded(capsys.readouterr().out), **of)
    functions.polaris.things["catalogs", "lakehouse"]["storageConfigInfo"]["allowedLocations"] = [
        "s3://other"
    ]
    functions.commit(TRADES, 2)
    handler.reconcile({}, Context())
    assert goes_off("catalog-failed", embedded(capsys.readouterr().out), **of)


def test_a_comparison_that_fails_is_told(functions: Deployment) -> None:
    boto3.client("dynamodb").delete_table(TableName=NAME)
    with pytest.warns(UserWarning, match="No application metrics"), pytest.raises(ClientError):
        handler.reconcile({}, Context())
    assert failed("catalog-reconcile-errors", "Reconcile")


def test_commits_that_cannot_be_followed_are_put_aside_and_told(functions: Deployment) -> None:
    functions.commit(TRADES, 1)
    functions.polaris.read = silent
    message = {"body": json.dumps({"detail": {"database": "trading", "table": "trades"}})}

    def handle(event: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = handler.feed(event, Context())
        return answer

    assert put_aside("catalog-messages-failed", handle, message, of="Failed")


def silent(_: str) -> dict[str, Any]:
    raise ConnectionError


def test_a_secret_that_was_changed_is_read_again(functions: Deployment) -> None:
    functions.commit(TRADES, 1)
    feed(TRADES)
    secrets = boto3.client("secretsmanager")
    good = secrets.get_secret_value(SecretId=functions.secret)["SecretString"]
    secrets.put_secret_value(
        SecretId=functions.secret, SecretString='{"client_id": "x", "client_secret": "y"}'
    )
    handler._sync.cache_clear()
    functions.commit(TRADES, 2)
    assert feed(TRADES) == []
    assert states()["trades"] == State.FAILED
    secrets.put_secret_value(SecretId=functions.secret, SecretString=good)
    handler.reconcile({}, Context())
    assert states()["trades"] == State.SYNCED


def test_tables_move_with_their_settings_to_another_namespace(functions: Deployment) -> None:
    location = functions.commit(TRADES, 1)
    feed(TRADES)
    old = functions.published(TRADES)
    settings = json.loads(old["Catalog"]) | {"namespace": "market"}
    new = old | {"Catalog": json.dumps(settings)}
    request = functions.cloudformation.request(
        "Update", new, OldResourceProperties=old, PhysicalResourceId="x"
    )
    handler.handle(request, Context())
    assert functions.cloudformation.answers[-1]["Status"] == "SUCCESS"
    assert ("lakehouse", "trading") not in functions.polaris.namespaces
    Wanted.parse(new).open().table(TRADES, published=True)
    found = functions.polaris.namespaces["lakehouse", "market"].tables
    assert found["trades"][0] == location


def test_another_catalog_is_not_made_in_the_place_of_one(functions: Deployment) -> None:
    old, side = functions.bootstrap(), functions.cloudformation
    new = functions.bootstrap(catalog="another")
    bootstrap.handle(
        side.request("Update", new, OldResourceProperties=old, PhysicalResourceId="x"), Context()
    )
    assert "cannot be changed into another" in side.answers[-1]["Reason"]
    bootstrap.handle(
        side.request("Update", old, OldResourceProperties=old, PhysicalResourceId="x"), Context()
    )
    assert side.answers[-1]["Status"] == "SUCCESS"
    assert ("catalogs", "another") not in functions.polaris.things


def test_no_secret_is_logged(functions: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    functions.commit(TRADES, 1)
    feed(TRADES)
    handler.reconcile({}, Context())
    told = "".join(capsys.readouterr())
    for secret in functions.polaris.secrets.values():
        assert secret not in told
    for token in functions.polaris.tokens:
        assert token not in told
