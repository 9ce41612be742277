"""The functions, as Lambda calls them: from the first commit to the end of the deployment."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from calve.names import TableName
from lambdas.delta import handler
from lambdas.delta.log import DeltaLog
from lambdas.publish_states import PublishStates, State, Target
from tests.alarms import embedded, failed, goes_off, put_aside
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.csv_export.deletes import delete_equal, delete_positions
from tests.unit.lambdas.delta.conftest import TRADES, USERS, World, location
from tests.unit.lambdas.states_table import NAME

OTHER = TableName("trading", "trades__dead_letters")


def feed(*names: TableName) -> list[str]:
    """Messages about these tables; those to deliver again."""
    records = [
        {
            "messageId": str(name),
            "body": json.dumps({"detail": {"database": name.database, "table": name.table}}),
        }
        for name in names
    ]
    answer = handler.feed({"Records": records}, Context())
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


def states() -> dict[str, State]:
    found = PublishStates(NAME, boto3.client("dynamodb")).all(Target.DELTA)
    return {each.table.partition(".")[2]: each.state for each in found}


def reason() -> str:
    row = PublishStates(NAME, boto3.client("dynamodb")).find(Target.DELTA, str(TRADES))
    assert row is not None
    return row.reason or ""


def test_from_nothing_to_nothing(world: World) -> None:
    handler.handle(world.side.request("Create", world.properties(TRADES, USERS)), Context())
    assert states() == {"trades": State.PENDING, "users": State.PENDING}
    table = world.append(TRADES, 3)
    assert feed(TRADES, TRADES, OTHER) == []
    assert (states(), world.rows(TRADES)) == ({"trades": State.SYNCED, "users": State.PENDING}, 3)
    (file,) = (task.file.file_path for task in table.scan().plan_files())
    for position in (1, 2):  # a data file may have several files of deletes
        delete_positions(table, file, [position])
        world.show(TRADES, table.refresh())
        world.append(USERS, 2)
        handler.reconcile({}, Context())
        assert (world.rows(TRADES), world.rows(USERS)) == (3 - position, 2 * position)

    update = world.side.request("Update", world.properties(TRADES), PhysicalResourceId="x")
    handler.handle(update, Context())
    assert not world.s3.list_objects_v2(Bucket="lake", Prefix="trading/users/").get("KeyCount")
    assert world.rows(TRADES) == 1

    handler.handle(world.side.request("Delete", world.properties(TRADES), PhysicalResourceId="x"), Context())
    assert [each["Reason"] for each in world.side.answers if each["Status"] == "FAILED"] == []
    assert not world.s3.list_objects_v2(Bucket="lake", Prefix="trading/").get("KeyCount")
    assert states() == {}


def test_a_table_that_delta_cannot_have_keeps_its_last_version_and_the_others_go_on(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    table = world.append(TRADES, 3)
    handler.reconcile({}, Context())
    of = {"function": Context().function_name}
    feed(TRADES)
    assert not goes_off("delta-failed", embedded(capsys.readouterr().out), **of)
    delete_equal(table, "id", [1])
    world.show(TRADES, table.refresh())
    world.append(USERS, 2)
    assert feed(TRADES, USERS) == []  # a look at all tables tries again
    assert (world.rows(TRADES), world.rows(USERS)) == (3, 2)
    assert states() == {"trades": State.FAILED, "users": State.SYNCED}
    assert "equality deletes" in reason()
    handler.reconcile({}, Context())
    assert goes_off("delta-failed", embedded(capsys.readouterr().out), **of)


def test_a_version_that_another_function_wrote_is_not_written_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(TRADES, 3)
    feed(TRADES)
    behind = DeltaLog(world.s3, location(TRADES)).read()
    world.append(TRADES, 4)
    feed(TRADES)
    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "read", lambda _: behind)
        assert feed(TRADES) == [str(TRADES)]
    assert (world.rows(TRADES), "another writer" in reason()) == (7, True)
    assert feed(TRADES) == []
    assert (world.rows(TRADES), reason()) == (7, "")


def test_a_comparison_that_fails_is_told(world: World) -> None:
    boto3.client("dynamodb").delete_table(TableName=NAME)
    with pytest.warns(UserWarning, match="No application metrics"), pytest.raises(ClientError):
        handler.reconcile({}, Context())
    assert failed("delta-reconcile-errors", "Reconcile")


def test_commits_that_cannot_be_followed_are_put_aside_and_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(TRADES, 1)

    def silent(_: DeltaLog) -> None:
        raise ConnectionError

    monkeypatch.setattr(DeltaLog, "read", silent)
    message = {"body": json.dumps({"detail": {"database": "trading", "table": "trades"}})}

    def handle(event: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = handler.feed(event, Context())
        return answer

    assert put_aside("delta-messages-failed", handle, message, of="Failed")
