"""The functions, as Lambda calls them: which events a receiver gets, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from openlineage.client.serde import Serde
from pyiceberg.table import Table

from calve.config.publishing import OpenLineage
from calve.names import TableName
from calve.outputs.origins import Origin, Origins
from calve.table.summary import ORIGINS
from lambdas.lineage import handler
from lambdas.lineage.events import Described, Glue
from lambdas.publish_states import PublishState, PublishStates, State, Target
from tests.alarms import embedded, failed, goes_off, put_aside
from tests.standins import openlineage
from tests.standins.openlineage import KEY, Receiver
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.delta.conftest import TRADES, USERS, World
from tests.unit.lambdas.delta.conftest import world as world
from tests.unit.lambdas.states_table import NAME

HOUR_MS = 3_600_000
TOPIC = {"namespace": "kafka://broker-1:9092", "name": "trades"}
REGIONS = {"namespace": "arn:aws:glue:us-east-1:123456789012", "name": "table/trading/regions"}
OF_TRADES = Origins(
    "trades",
    "broker-1:9092",
    {"id": "long", "email": "string"},
    {"id": (Origin("id"), Origin("email", "masked"), Origin("code", table="trading.regions"))},
    (Origin("kind"),),
)


@dataclass
class Scene:
    """A lake, and a receiver of its lineage. clock_ms: of the functions."""

    world: World
    receiver: Receiver
    clock_ms: int

    def commit(self, rows: int, origins: Origins = OF_TRADES) -> Table:
        table = self.world.append(TRADES, rows)
        with table.transaction() as change:
            change.set_properties({ORIGINS: origins.to_json()})
        self.world.show(TRADES, table)
        return table

    def feed(self, name: TableName = TRADES) -> list[str]:
        """A message about a table; whether it is to be delivered again."""
        detail = {"database": name.database, "table": name.table}
        record = {"messageId": "m", "body": json.dumps({"detail": detail})}
        answer = handler.feed({"Records": [record]}, Context())
        return [each["itemIdentifier"] for each in answer["batchItemFailures"]]

    def row_of(self, name: TableName) -> PublishState:
        found = PublishStates(NAME, boto3.client("dynamodb")).find(Target.OPENLINEAGE, str(name))
        assert found is not None
        return found

    @property
    def row(self) -> PublishState:
        return self.row_of(TRADES)

    @property
    def rows(self) -> list[int]:
        """Rows of each end of a run."""
        ends = self.receiver.of(str(TRADES))
        return [each["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for each in ends]


@pytest.fixture
def scene(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for each in (handler._sync, handler._published, handler._client, handler._sender):
        each.cache_clear()
    monkeypatch.setenv("ACCOUNT", "123456789012")
    secret = boto3.client("secretsmanager").create_secret(
        Name="marquez", SecretString=json.dumps({"api_key": KEY})
    )
    monkeypatch.setattr(handler, "RETRY", handler.RETRY | {"backoff_factor": 0})
    with openlineage.serving() as receiver:
        settings = OpenLineage(receiver.url, "trading", secret=f"aws:{secret['ARN']}")
        monkeypatch.setenv("LINEAGE", settings.to_json())
        made = Scene(world, receiver, 1_900_000_000_000)
        opened = handler._sync(NAME)
        monkeypatch.setattr(handler, "_sync", lambda _: replace(opened, clock=lambda: made.clock_ms))
        yield made


def test_a_table_is_described_when_its_origins_are_there(scene: Scene) -> None:
    scene.commit(0)
    scene.world.append(USERS, 3)  # no job has noted its origins
    for name in (TRADES, USERS):
        assert scene.feed(name) == []
        assert (scene.receiver.events, scene.row_of(name).state) == ([], State.PENDING)
    table = scene.commit(2)
    scene.feed()
    (start,), (end,) = scene.receiver.of(str(TRADES), "START"), scene.receiver.of(str(TRADES))
    assert start["run"] == end["run"]
    assert start["eventTime"] <= end["eventTime"]
    assert end["job"]["namespace"] == "trading"
    topic, regions = end["inputs"]
    assert {name: topic[name] for name in TOPIC} == TOPIC
    assert [each["name"] for each in topic["facets"]["schema"]["fields"]] == ["id", "email"]
    assert {name: regions[name] for name in REGIONS} == REGIONS
    (output,) = end["outputs"]
    assert output["name"] == "table/trading/trades"
    (stored,) = output["facets"]["symlinks"]["identifiers"]
    assert (stored["namespace"], stored["name"]) == ("s3://lake", "trading/trades")
    assert output["facets"]["version"]["datasetVersion"] == str(table.current_snapshot().snapshot_id)  # type: ignore[union-attr]
    lineage = output["facets"]["columnLineage"]
    assert [
        (each["name"], each["field"], kinds(each)) for each in lineage["fields"]["id"]["inputFields"]
    ] == [
        ("trades", "id", ("DIRECT", "IDENTITY", False)),
        ("trades", "email", ("DIRECT", "TRANSFORMATION", True)),
        ("table/trading/regions", "code", ("DIRECT", "IDENTITY", False)),
    ]
    (chosen,) = lineage["dataset"]
    assert (chosen["field"], kinds(chosen)) == ("kind", ("INDIRECT", "FILTER", False))


def kinds(field: dict[str, Any]) -> tuple[str, str, bool]:
    (each,) = field["transformations"]
    return each["type"], each["subtype"], each["masking"]


def test_new_rows_are_sent_once_an_hour_and_other_origins_at_once(scene: Scene) -> None:
    scene.commit(3)
    scene.feed()
    scene.feed()
    assert scene.rows == [3]
    scene.commit(2)
    scene.commit(4)
    scene.feed()
    assert scene.rows == [3]
    scene.clock_ms += HOUR_MS
    handler.reconcile({}, Context())
    assert scene.rows == [3, 6]
    scene.clock_ms += HOUR_MS
    handler.reconcile({}, Context())
    assert scene.rows == [3, 6], "a table without new rows has no new run"
    scene.commit(1)
    scene.feed()
    scene.commit(0, replace(OF_TRADES, rows=()))
    scene.feed()
    assert scene.rows == [3, 6, 1, 0]
    assert scene.receiver.events[-1]["outputs"][0]["facets"]["columnLineage"]["dataset"] == []


def test_another_receiver_gets_all_tables_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.commit(3)
    scene.feed()
    opened = handler._sync(NAME)
    with openlineage.serving(key=None) as other:
        receiver = OpenLineage(other.url, "trading")
        moved = replace(opened, receiver=receiver, send=handler.sender(receiver))
        monkeypatch.setattr(handler, "_sync", lambda _: moved)
        handler.reconcile({}, Context())
        handler.reconcile({}, Context())
        assert len(other.of(str(TRADES))) == 1


def test_rewritten_rows_are_not_new(scene: Scene) -> None:
    table = scene.commit(3)
    table.append(table.scan().to_arrow())
    metadata = json.loads(table.metadata.model_dump_json()) | {"location": "s3://lake/trading/trades"}
    metadata["snapshots"][-1]["summary"]["operation"] = "replace"  # as a compaction's
    receiver = OpenLineage("https://lineage.example.com", "trading")
    described = Described.of(TRADES, metadata, Glue("us-east-1", "123456789012"), receiver)
    assert described is not None
    end = json.loads(Serde.to_json(described.events(None)[1]))
    assert end["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3


def test_an_event_that_is_sent_again_is_the_same_run(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.commit(3)
    with monkeypatch.context() as patch:
        patch.setattr(PublishStates, "put", died)
        with pytest.warns(UserWarning, match="No application metrics"), pytest.raises(SystemExit):
            scene.feed()
    scene.feed()
    one, other = scene.receiver.of(str(TRADES))
    assert one == other


def died(*_: object) -> None:
    raise SystemExit


@pytest.mark.parametrize(
    ("status", "again", "reason"),
    [
        (503, ["m"], "does not answer: RetryError"),
        (429, ["m"], "refuses the events: HTTP 429"),
        (400, [], "refuses the events: HTTP 400"),
        (302, [], "redirects to another address"),
    ],
)
def test_a_receiver_that_takes_nothing_is_named_and_asked_again(
    scene: Scene, capsys: pytest.CaptureFixture[str], status: int, again: list[str], reason: str
) -> None:
    scene.commit(3)
    scene.receiver.status = status
    assert scene.feed() == again
    assert (scene.row.state, reason in (scene.row.reason or "")) == (State.FAILED, True), scene.row.reason
    of = {"function": Context().function_name}
    capsys.readouterr()
    handler.reconcile({}, Context())
    said = capsys.readouterr().out
    assert goes_off("lineage-failed", embedded(said), **of)
    assert KEY not in said
    scene.receiver.status = 201
    handler.reconcile({}, Context())
    assert (scene.rows, scene.row.state) == ([3], State.SYNCED)
    assert not goes_off("lineage-failed", embedded(capsys.readouterr().out), **of)


def test_a_changed_key_is_read_again(scene: Scene) -> None:
    secrets = boto3.client("secretsmanager")
    secrets.put_secret_value(SecretId="marquez", SecretString=json.dumps({"api_key": "old"}))
    scene.commit(3)
    scene.feed()
    assert "HTTP 401" in (scene.row.reason or "")
    secrets.put_secret_value(SecretId="marquez", SecretString=json.dumps({"api_key": KEY}))
    scene.feed()
    assert scene.rows == [3]


def test_tables_that_are_no_longer_published_are_forgotten_and_a_delete_needs_no_secret(scene: Scene) -> None:
    world = scene.world
    handler.handle(world.side.request("Create", world.properties(TRADES, USERS)), Context())
    assert scene.row.state is State.PENDING
    boto3.client("secretsmanager").delete_secret(SecretId="marquez", ForceDeleteWithoutRecovery=True)
    handler.handle(world.side.request("Update", world.properties(TRADES), PhysicalResourceId="x"), Context())
    states = PublishStates(NAME, boto3.client("dynamodb"))
    assert [each.table for each in states.all(Target.OPENLINEAGE)] == [str(TRADES)]
    handler.handle(world.side.request("Delete", world.properties(TRADES), PhysicalResourceId="x"), Context())
    assert [each["Reason"] for each in world.side.answers if each["Status"] == "FAILED"] == []
    assert list(states.all(Target.OPENLINEAGE)) == []


def test_a_look_that_fails_is_told(scene: Scene) -> None:
    boto3.client("dynamodb").delete_table(TableName=NAME)
    with pytest.warns(UserWarning, match="No application metrics"), pytest.raises(ClientError):
        handler.reconcile({}, Context())
    assert failed("lineage-reconcile-errors", "Reconcile")


def test_commits_that_cannot_be_followed_are_put_aside_and_told(scene: Scene) -> None:
    scene.commit(1)
    scene.receiver.status = 503
    message = {"body": json.dumps({"detail": {"database": "trading", "table": "trades"}})}

    def handle(event: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = handler.feed(event, Context())
        return answer

    assert put_aside("lineage-messages-failed", handle, message, of="Failed")
