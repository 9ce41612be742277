"""`calve export` and `calve link` against the deployed functions' tables, files and schedules."""

import io
import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from calve.errors import CalveError, ConfigError
from cli.exports import bounds
from cli.main import app
from lambdas.tokens import reference
from tests.unit.lambdas.links.conftest import BUCKET, EXPORT, FOLDER, PREFIX, World, manifest
from tests.unit.lambdas.links.test_notify import links_in

CONFIG = """
name: trading
kafka: {bootstrap_servers: "kafka.example:9092"}
registry: {url: "http://registry.example"}
lake: {database: trading, region: eu-north-1}
tables:
  stock_trades: {topic: stock_trades}
"""
VILNIUS = ZoneInfo("Europe/Vilnius")
NOW = datetime(2026, 11, 9, 6, tzinfo=UTC)


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """The outputs of what is deployed."""
    deployed = {
        "trading-lake": {"Warehouse": f"s3://{BUCKET}"},
        "trading-exports": {"ExportFunction": "csv_export", "LinksTable": "links"},
    }
    original = BaseClient._make_api_call

    def answer(self: Any, operation: str, parameters: Any) -> Any:
        if operation != "DescribeStacks":
            return original(self, operation, parameters)
        if parameters["StackName"] not in deployed:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "does not exist"}}, operation)
        outputs = deployed[parameters["StackName"]].items()
        return {"Stacks": [{"Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs]}]}

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)
    return deployed


@pytest.fixture
def calve(world: World, stacks: dict[str, dict[str, str]], tmp_path: Path):
    """Run a command; return what it wrote as JSON."""
    config = tmp_path / "calve.yaml"
    config.write_text(CONFIG)

    def run(*arguments: str, output: str = "json") -> Any:
        result = CliRunner().invoke(app, [*arguments, "-c", str(config), "-o", output])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return json.loads(result.stdout) if output == "json" else result.stdout

    return run


@pytest.fixture
def invoked(world: World, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The events that the export function gets; it answers with what `answers` of the first one says."""
    scheduler = world.client("scheduler")
    scheduler.create_schedule_group(Name="trading")
    scheduler.create_schedule(
        Name="trading-weekly_trades",
        GroupName="trading",
        ScheduleExpression=EXPORT.schedule,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": "arn:aws:lambda:eu-north-1:123456789012:function:csv_export",
            "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
            "Input": json.dumps({"export": asdict(EXPORT), "scheduled_at": "<aws.scheduler.scheduled-time>"}),
        },
    )
    events: list[dict[str, Any]] = []
    original = BaseClient._make_api_call

    def answer(self: Any, operation: str, parameters: Any) -> Any:
        if operation != "Invoke":
            return original(self, operation, parameters)
        event = json.loads(parameters["Payload"])
        events.append(event | {"function": parameters["FunctionName"]})
        if event.get("window", {}).get("from", "").startswith("2000"):
            error = {"errorType": "Fatal", "errorMessage": "no table"}
            return {"Payload": io.BytesIO(json.dumps(error).encode()), "FunctionError": "Unhandled"}
        failed = event.get("window", {}).get("from", "").startswith("2001")
        window = event.get("window") or manifest()["window"]
        outcome = (
            {"status": "failed", "failure": "missing_table"} if failed else {"status": "written", "rows": 7}
        )
        return {"Payload": io.BytesIO(json.dumps([outcome | {"window": window}]).encode())}

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)
    return events


def test_a_run_gives_the_function_what_its_schedule_gives_it(calve, invoked):
    written = calve("export", "run", "weekly_trades")
    assert written["windows"][0]["status"] == "written"
    [event] = invoked
    assert event["function"] == "csv_export"
    assert event["export"] == json.loads(EXPORT.to_json())
    assert "window" not in event
    age = datetime.now(UTC) - datetime.fromisoformat(event["scheduled_at"])
    assert 0 <= age.total_seconds() < 60


def test_a_run_of_a_window_says_which(calve, invoked):
    calve("export", "run", "weekly_trades", "--window", "2026-10-19..2026-10-25")
    assert invoked[0]["window"] == {"from": "2026-10-19T00:00:00+03:00", "to": "2026-10-26T00:00:00+02:00"}


def test_a_run_that_fails_is_an_error(calve, invoked):
    with pytest.raises(CalveError, match="ended with Fatal: no table"):
        calve("export", "run", "weekly_trades", "-w", "2000-01-01..2000-01-01")
    with pytest.raises(CalveError, match="missing_table"):
        calve("export", "run", "weekly_trades", "-w", "2001-01-01..2001-01-01")


def test_an_export_that_is_not_deployed_is_named(calve, invoked):
    with pytest.raises(ConfigError, match='no deployed export "monthly"'):
        calve("export", "run", "monthly")
    assert invoked == []


def test_without_a_deployed_stack_the_cure_is_a_deploy(stacks, calve):
    del stacks["trading-exports"]
    with pytest.raises(CalveError, match="trading-exports is not deployed") as refused:
        calve("export", "list")
    assert "calve deploy" in str(refused.value)


@pytest.mark.parametrize(
    ("window", "start", "end"),
    [
        ("previous_week", "2026-11-02T00:00:00+02:00", "2026-11-09T00:00:00+02:00"),
        ("previous_day", "2026-11-08T00:00:00+02:00", "2026-11-09T00:00:00+02:00"),
        ("previous_month", "2026-10-01T00:00:00+03:00", "2026-11-01T00:00:00+02:00"),
        ("2026-11-02..2026-11-02", "2026-11-02T00:00:00+02:00", "2026-11-03T00:00:00+02:00"),
    ],
)
def test_a_window_has_whole_local_days(window, start, end):
    assert bounds(window, VILNIUS, NOW) == {"from": start, "to": end}


@pytest.mark.parametrize(
    "window", ["", "last_week", "2026-11-08..2026-11-02", "2026-11-31..2026-12-01", "2026-11-02"]
)
def test_what_is_no_window_is_refused(window):
    with pytest.raises(ConfigError, match="is no window"):
        bounds(window, VILNIUS, NOW)


def test_the_list_has_every_delivery_and_its_links(world, calve, ses_export):
    world.notify(world.write(manifest(ses_export)))
    second = f"{FOLDER[:-1]}2"
    moved = json.loads(
        json.dumps(manifest(correction=True, created_at="2026-11-10T06:00:00+02:00")).replace(FOLDER, second)
    )
    world.write(moved, key=f"{second}/manifest.json")
    found = calve("export", "list")["deliveries"]
    assert [(each["correction"], each["links_alive"]) for each in found] == [(True, 0), (False, 2)]
    assert found[1]["files"] == [part["key"] for part in manifest()["parts"]]
    assert calve("export", "list", "other")["deliveries"] == []
    assert len(calve("export", "list", "-n", "1")["deliveries"]) == 1
    text = calve("export", "list", output="text")
    assert "2\N{EN DASH}8 November 2026" in text
    assert "12,345" in text


def test_a_revoked_link_is_dead_at_once_and_the_others_live(world, calve, ses_export):
    world.notify(world.write(manifest(ses_export)))
    paths = [links_in(str(mail.body))[0] for mail in world.mailed()]
    assert [world.request(path)["statusCode"] for path in paths] == [200, 200]
    listed = calve("link", "list")["links"]
    assert [each["state"] for each in listed] == ["alive", "alive"]
    revoked = calve("link", "revoke", listed[0]["log_name"])["revoked"]
    assert revoked == [listed[0]["id"]]
    assert reference(revoked[0]) == listed[0]["log_name"]
    assert sorted(world.request(path)["statusCode"] for path in paths) == [200, 404]
    assert sorted(each["state"] for each in calve("link", "list", "-x", "weekly_trades")["links"]) == [
        "alive",
        "revoked",
    ]


def test_all_links_of_an_export_are_revoked_together(world, calve, ses_export):
    world.notify(world.write(manifest(ses_export)))
    assert len(calve("link", "revoke", "--export", "weekly_trades")["revoked"]) == 2
    assert [world.request(links_in(str(mail.body))[0])["statusCode"] for mail in world.mailed()] == [404, 404]
    assert calve("export", "list")["deliveries"][0]["links_alive"] == 0


def test_a_revocation_of_nothing_is_an_error(calve):
    with pytest.raises(CalveError, match="no link of nobody"):
        calve("link", "revoke", "nobody")
    with pytest.raises(ConfigError, match="which links"):
        calve("link", "revoke")


def test_a_list_says_why_a_link_is_over(world, calve, ses_export):
    one = replace(ses_export, recipients=("ann@example.com",))
    world.notify(world.write(manifest(one)))
    link_id = world.rows()[0]["id"]["S"]
    world.change(link_id, downloads={"N": "50"})
    assert calve("link", "list")["links"][0]["state"] == "used up"
    world.change(link_id, expires_at={"N": "1"})
    assert calve("link", "list")["links"][0]["state"] == "expired"
    text = calve("link", "list", output="text")
    assert "50 of 50" in text
    assert "ago" in text


def test_a_list_holds_no_address_and_no_token(world, calve, ses_export):
    world.notify(world.write(manifest(ses_export)))
    tokens = [links_in(str(mail.body))[0].strip("/") for mail in world.mailed()]
    shown = json.dumps(calve("link", "list")) + calve("link", "list", output="text")
    for secret in (*tokens, *(token.partition(".")[2] for token in tokens), "@example.com"):
        assert secret not in shown
    assert PREFIX in shown
