"""The function as AWS invokes it: event in, files, schedules and events out; nothing of the table in the logs."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import boto3
import pyarrow as pa
import pytest

from calve.config.publishing import Export
from calve.errors import Fatal
from lambdas.csv_export import handler
from lambdas.csv_export.delivery import Folder, Outcome
from lambdas.csv_export.export import Environment
from lambdas.function import from_variables
from tests.alarms import embedded, failed, goes_off, mailed
from tests.announcements import assert_as_documented
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.csv_export.lake import BUCKET, World, at, export, trades

VARIABLES = {
    "CALVE_NAME": "trading",
    "LAKE_BUCKET": BUCKET,
    "EXPORTS_PREFIX": "exports/",
    "SCHEDULE_GROUP": "trading",
    "SCHEDULER_ROLE_ARN": "arn:aws:iam::123456789012:role/scheduler",
    "FUNCTION_ARN": "arn:aws:lambda:us-east-1:123456789012:function:csv_export",
    "IDEMPOTENCY_TABLE": "once",
    "AWS_REGION": "us-east-1",
    "POWERTOOLS_TRACE_DISABLED": "true",
}
SECRET = "a-value-of-the-table"
CONTEXT = Context()


class Told:
    """The event bus."""

    def __init__(self) -> None:
        self.details: list[dict] = []

        self.refusals = 0

    def put_events(self, *, Entries: list[dict]) -> dict:
        assert [(e["Source"], e["DetailType"]) for e in Entries] == [("calve", "calve.export.failed")]
        if self.refusals:
            self.refusals -= 1
            return {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ThrottlingException"}]}
        self.details += [json.loads(entry["Detail"]) for entry in Entries]
        for detail in self.details:
            assert_as_documented("calve.export.failed", detail)
        return {"FailedEntryCount": 0}


@pytest.fixture
def told(lake: World, monkeypatch: pytest.MonkeyPatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    dynamodb = boto3.client("dynamodb")
    dynamodb.create_table(
        TableName="once",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    scheduler = boto3.client("scheduler")
    scheduler.create_schedule_group(Name="trading")
    handler.parts.cache_clear()
    told = Told()
    parts = handler.parts()
    object.__setattr__(parts, "catalog", lake.catalog)
    object.__setattr__(parts, "events", told)
    yield told
    handler.parts.cache_clear()
    scheduler.delete_schedule_group(Name="trading")
    dynamodb.delete_table(TableName="once")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What the logger writes: it holds the stream that was standard output when it was made."""
    stream = io.StringIO()
    monkeypatch.setattr(handler.logger.registered_handler, "stream", stream)
    return stream


def event(what: Export, when: datetime | None = None, **more: object) -> dict:
    scheduled = when or datetime(2026, 11, 16, 6, tzinfo=UTC)
    text = scheduled.isoformat().replace("+00:00", "Z")
    return {"export": json.loads(what.to_json()), "scheduled_at": text, **more}


def secret_rows() -> pa.Table:
    rows = trades(at(10))
    return rows.set_column(2, "side", pa.array([SECRET]))


def test_a_scheduled_run_writes_the_file_and_logs_counts_only(lake: World, told: Told, log, capsys) -> None:
    lake.made(secret_rows())
    (outcome,) = handler.handle(event(export()), CONTEXT)
    assert (outcome["status"], outcome["rows"]) == ("written", 1)
    assert outcome["manifest"] in lake.objects()
    logged = log.getvalue() + "".join(capsys.readouterr())
    assert '"export.written"' in logged
    assert SECRET not in logged
    assert "analyst@example.com" not in logged
    assert told.details == []


def test_an_event_that_comes_twice_runs_once(lake: World, told: Told, monkeypatch) -> None:
    lake.made(trades(at(10)))
    first = handler.handle(event(export()), CONTEXT)
    monkeypatch.setattr(handler, "run", None)
    assert handler.handle(event(export()), CONTEXT) == first


def test_a_lagging_table_schedules_the_same_order_once_more(lake: World, told: Told) -> None:
    now = datetime.now(UTC)
    lake.made(trades(at(10)), complete_until=now - timedelta(days=60))
    sent = event(export(), now)
    (outcome,) = handler.handle(sent, CONTEXT)
    assert outcome["status"] == "waiting"
    scheduler = boto3.client("scheduler")
    (found,) = scheduler.list_schedules(GroupName="trading")["Schedules"]
    schedule = scheduler.get_schedule(GroupName="trading", Name=found["Name"])
    assert json.loads(schedule["Target"]["Input"]) == sent | {"attempt": 1}
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert schedule["ScheduleExpression"].startswith("at(20")


def test_a_file_that_is_written_too_early_is_told(lake: World, told: Told, capsys) -> None:
    lake.made(trades(at(10)), complete_until=at(10))
    (outcome,) = handler.handle(event(export()), CONTEXT)
    assert (outcome["status"], outcome["complete"]) == ("written", False)
    points = list(embedded(capsys.readouterr().out))
    assert goes_off("export-late", points, export="weekly", function=CONTEXT.function_name)


def test_a_failure_is_told_once_with_its_reason(lake: World, told: Told) -> None:
    lake.made(trades(at(10)))
    what = export(columns=("nosuch",))
    for attempt in (1, 2):
        (outcome,) = handler.handle(event(what, attempt=attempt), CONTEXT)
        assert (outcome["status"], outcome["failure"]) == ("failed", "missing_column")
    assert [detail["reason"] for detail in told.details] == ["the table trading.trades has no column nosuch"]
    assert told.details[0]["export"]["name"] == "weekly"
    assert told.details[0]["final"]
    assert told.details[0]["window"]["from"] == "2026-11-09T00:00:00+00:00"
    sent = {"source": "calve", "detail-type": "calve.export.failed", "detail": told.details[0]}
    assert mailed("export-failed", sent)


def test_an_unexpected_error_is_raised_and_told_once_without_its_text(
    lake: World, told: Told, monkeypatch, log, capsys
) -> None:
    def broken(*_):
        raise RuntimeError(SECRET)

    monkeypatch.setattr(handler, "run", broken)
    for _ in range(2):
        with pytest.raises(Fatal, match="RuntimeError"):
            handler.handle(event(export()), CONTEXT)
    assert failed("export-errors", "Writer")
    assert len(told.details) == 1
    assert "RuntimeError" in told.details[0]["reason"]
    assert not told.details[0]["final"]
    logged = log.getvalue() + "".join(capsys.readouterr())
    assert "export.broken" in logged
    assert SECRET not in logged + json.dumps(told.details)


@pytest.mark.parametrize("said", ["<aws.scheduler.scheduled-time>", "2026-11-16T06:00:00"])
def test_an_event_without_a_scheduled_time_is_refused(lake: World, told: Told, said: str) -> None:
    (outcome,) = handler.handle(event(export()) | {"scheduled_at": said}, CONTEXT)
    assert outcome["failure"] == "bad_event"
    assert told.details[0]["window"] is None


def test_an_emulator_s_endpoint_reaches_pyiceberg() -> None:
    there = from_variables(
        Environment, VARIABLES | {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}
    ).catalog_properties()
    assert there["s3.endpoint"] == there["glue.endpoint"] == "http://127.0.0.1:4566"
    assert "s3.endpoint" not in from_variables(Environment, VARIABLES).catalog_properties()


def test_an_event_of_a_run_that_has_not_ended_is_looked_at_again_when_it_must_have(
    lake: World, told: Told, monkeypatch
) -> None:
    lake.made(trades(at(10)))
    scheduled = event(export(), datetime.now(UTC))

    monkeypatch.setattr(handler, "run", die)
    with pytest.raises(SystemExit):
        handler.handle(scheduled, CONTEXT)
    (outcome,) = handler.handle(scheduled, CONTEXT)
    assert outcome["status"] == "running"
    client = boto3.client("scheduler")
    (again,) = client.list_schedules(GroupName="trading")["Schedules"]
    made = client.get_schedule(GroupName="trading", Name=again["Name"])
    assert json.loads(made["Target"]["Input"]) == scheduled
    assert told.details == []


def test_a_run_that_is_killed_every_time_is_told_once(lake: World, told: Told, monkeypatch) -> None:
    lake.made(trades(at(10)))
    monkeypatch.setattr(handler, "run", die)
    for killed in (1, 2, 3):
        with pytest.raises(SystemExit):
            handler.handle(event(export()), CONTEXT)
        time_passes()
        assert len(told.details) == min(killed - 1, 1)
    assert told.details[0]["reason"] == handler.KILLED
    assert told.details[0]["window"]["from"] == "2026-11-09T00:00:00+00:00"
    assert not told.details[0]["final"]


def test_a_run_that_ends_after_one_that_was_killed_writes_the_file(
    lake: World, told: Told, monkeypatch
) -> None:
    lake.made(trades(at(10)))
    with monkeypatch.context() as killing:
        killing.setattr(Folder, "put", die)
        with pytest.raises(SystemExit):
            handler.handle(event(export()), CONTEXT)
    time_passes()
    (outcome,) = handler.handle(event(export()), CONTEXT)
    assert outcome["status"] == "written"
    (part,) = json.loads(lake.bytes(outcome["manifest"]))["parts"]
    left = [key for key in lake.objects() if key.endswith(".csv")]
    assert (len(left), left.count(part["key"])) == (2, 1)


def test_a_run_that_is_killed_after_its_file_was_written_fails_nobody(
    lake: World, told: Told, monkeypatch
) -> None:
    lake.made(trades(at(10)))
    now = datetime.now(UTC)
    bounds = {"from": "2026-11-09T00:00:00+00:00", "to": "2026-11-16T00:00:00+00:00"}
    sent = event(export(), now, window=bounds)
    with monkeypatch.context() as killing:
        killing.setattr(Outcome, "to_json", die)
        with pytest.raises(SystemExit):
            handler.handle(sent, CONTEXT)
    time_passes()
    (outcome,) = handler.handle(sent, CONTEXT)
    assert (outcome["status"], told.details) == ("unchanged", [])


def test_a_run_of_which_nothing_was_heard_is_told_when_it_is_given_up(
    lake: World, told: Told, monkeypatch
) -> None:
    monkeypatch.setattr(handler, "run", die)
    long_ago = event(export(), datetime.now(UTC) - timedelta(days=1))
    with pytest.raises(SystemExit):
        handler.handle(long_ago, CONTEXT)
    with pytest.raises(Fatal, match="IdempotencyAlreadyInProgressError"):
        handler.handle(long_ago, CONTEXT)
    assert len(told.details) == 1


def test_an_event_that_the_bus_did_not_take_is_sent_again(lake: World, told: Told) -> None:
    lake.made(trades(at(10)))
    told.refusals = 2
    with pytest.raises(Fatal, match="did not take"):
        handler.handle(event(export(columns=("nosuch",))), CONTEXT)
    assert told.details == []
    handler.handle(event(export(columns=("nosuch",))), CONTEXT)
    assert told.details[-1]["reason"] == "the table trading.trades has no column nosuch"


def time_passes() -> None:
    """So much that the records of runs that were killed are void."""
    client = boto3.client("dynamodb")
    for record in client.scan(TableName="once")["Items"]:
        if record["status"]["S"] == "INPROGRESS":
            client.put_item(TableName="once", Item=record | {"in_progress_expiration": {"N": "1"}})


def die(*_: object) -> None:
    raise SystemExit  # what is killed leaves its record as this does
