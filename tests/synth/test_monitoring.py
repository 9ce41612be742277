import json

import pytest

from calve.log import event
from tests.integration.support.events import documented
from tests.synth.conftest import text
from tests.synth.log_filters import metrics

NUMBERS = dict.fromkeys(
    (
        "round",
        "snapshot_id",
        "records",
        "rows",
        "rows_deleted",
        "filtered",
        "deduplicated",
        "gaps",
        "lost",
        "bytes_in",
        "files",
        "file_bytes",
        "bytes_written",
        "cpu_s",
        "s3_puts",
        "s3_gets",
        "catalog_calls",
    ),
    1,
) | dict.fromkeys(
    (
        "lag_records",
        "lag_s",
        "freshness_s",
        "freshness_p50_s",
        "freshness_p95_s",
        "lateness",
        "missed",
        "stage_ms",
        "commit_ms",
        "round_ms",
        "complete_until",
    ),
    2,
)


@pytest.fixture
def log(capsys):
    """Write an event as the job does; returns its line."""

    def write(name, **facts):
        event(name, **facts)
        line = capsys.readouterr().out
        assert set(json.loads(line)) == documented()[name]
        return line

    return write


@pytest.fixture
def written(log):
    """The same, of a table."""

    def write(name, table, **facts):
        return log(name, table=table, topic=table.partition(".")[2], **facts)

    return write


def test_each_trouble_has_an_alarm_that_mails(synthesized):
    alarms = synthesized.find("trading-monitoring", "AWS::CloudWatch::Alarm").values()
    names = {each["AlarmName"].removeprefix("trading-") for each in alarms}
    of_tables = {
        f"{table}-{what}"
        for table in ("stock_trades", "users", "sales")
        for what in ("lag", "state", "lost", "paused")
    }
    troubles = ("dead-letters", "failed", "announcements", "maintenance-failed")
    of_jobs = {f"{job}-{what}" for job in ("main", "nightly") for what in troubles}
    of_schedules = {"job-not-started", "export-not-started", "maintenance-not-started", "start-errors"}
    of_exports = {f"export-{what}" for what in ("errors", "mail-errors", "link-faults")}
    of_exports |= {f"weekly_trades-{what}" for what in ("late", "mail-undelivered")}
    of_running = {
        f"{table}-{what}" for table in ("stock_trades", "users") for what in ("silent", "freshness")
    }
    of_running |= {"main-given-up", "watchdog-errors"}
    of_keys = {f"{keys}-keys-not-rotated" for keys in ("kafka", "emit", "registry", "link", "snowflake")}
    of_catalog = {f"catalog-{what}" for what in ("failed", "reconcile-errors", "messages-failed")}
    of_snowflake = {
        f"snowflake-{what}" for what in ("failed", "lag", "stuck", "not-reconciled", "messages-failed")
    }
    of_lake = of_tables | of_jobs | of_schedules | of_running
    assert names == of_lake | of_exports | of_keys | of_catalog | of_snowflake
    (topic,) = synthesized.find("trading-monitoring", "AWS::SNS::Topic")
    assert all(each["AlarmActions"] == [{"Ref": topic}] for each in alarms)
    subscription = synthesized.one("trading-monitoring", "AWS::SNS::Subscription")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")


@pytest.mark.parametrize(
    ("deployment", "table"),
    [("trading", "trading.stock_trades"), ("streams", "mkuaxgq4rv2bzfsxmfd0eq.orders")],
    ids=["database", "cluster_id"],
)
def test_the_alarms_of_a_table_watch_what_its_events_become(synthesized, written, deployment, table):
    name = table.partition(".")[2]
    filters = synthesized.find(f"{deployment}-monitoring", "AWS::Logs::MetricFilter").values()
    round_ = written("round.committed", table, dead_letters={"malformed": 3}, skipped={}, **NUMBERS)
    state = written("table.state", table, state="suspended", code="topic_recreated", reason="r", fix=None)
    idle = written("table.complete", table, complete_until=1.0)
    watched = {
        each["AlarmName"].removeprefix(f"{deployment}-"): (
            each["Namespace"],
            each["MetricName"],
            tuple((one["Name"], one["Value"]) for one in each.get("Dimensions", [])),
        )
        for each in synthesized.find(f"{deployment}-monitoring", "AWS::CloudWatch::Alarm").values()
    }
    measured = metrics(filters, round_)
    assert measured[watched[f"{name}-freshness"]] == 2
    assert measured[watched[f"{name}-lag"]] == 2
    assert measured[watched[f"{name}-lost"]] == 1
    assert measured[watched["main-dead-letters"]] == 1
    assert watched[f"{name}-state"] not in measured
    assert metrics(filters, state)[watched[f"{name}-state"]] == 1
    for line in (round_, state, idle):
        assert watched[f"{name}-silent"] in metrics(filters, line)


def test_a_round_without_rejects_or_loss_is_no_trouble(synthesized, written):
    filters = synthesized.find("trading-monitoring", "AWS::Logs::MetricFilter").values()
    line = written("round.committed", "trading.users", dead_letters={}, skipped={}, **(NUMBERS | {"lost": 0}))
    assert {metric for _, metric, _ in metrics(filters, line)} == {"Freshness", "Lag", "Rows", "Heard"}


def test_only_silence_is_taken_for_trouble_where_there_is_no_data(synthesized):
    alarms = synthesized.find("trading-monitoring", "AWS::CloudWatch::Alarm").values()
    breaching = {each["AlarmName"] for each in alarms if each["TreatMissingData"] == "breaching"}
    assert breaching == {"trading-stock_trades-silent", "trading-users-silent"}
    (silent,) = [each for each in alarms if each["AlarmName"] == "trading-users-silent"]
    assert (silent["ComparisonOperator"], silent["Threshold"]) == ("LessThanThreshold", 1)


def test_what_is_not_of_a_table_is_known_by_its_dimensions(synthesized):
    alarms = synthesized.find("trading-monitoring", "AWS::CloudWatch::Alarm").values()
    by_name = {each["AlarmName"].removeprefix("trading-"): each for each in alarms}

    def watched(name):
        alarm = by_name[name]
        dimensions = {one["Name"]: one["Value"] for one in alarm["Dimensions"]}
        return alarm["Namespace"], alarm["MetricName"], dimensions

    assert watched("main-given-up") == (
        "calve",
        "WatchdogExhausted",
        {"service": "job_control", "job": "trading-main"},
    )
    for name, group in (("job-not-started", "trading-jobs"), ("export-not-started", "trading")):
        assert watched(name) == ("AWS/Scheduler", "InvocationDroppedCount", {"ScheduleGroup": group})
    assert watched("weekly_trades-late") == (
        "calve",
        "ExportIncomplete",
        {"service": "csv_export", "export": "weekly_trades", "function": "trading-export"},
    )


def test_metrics_come_from_the_log_that_the_job_writes(synthesized):
    filters = synthesized.find("trading-monitoring", "AWS::Logs::MetricFilter").values()
    assert len(filters) == 2 * 11
    for each in filters:
        stack = "maintenance" if "maintenance" in each["FilterPattern"] else "ingest"
        assert f"trading-{stack}" in text(each["LogGroupName"])


def test_filters_are_deployed_after_the_log_groups_that_they_filter(synthesized):
    artifacts = json.loads((synthesized.folder / "manifest.json").read_text())["artifacts"]
    found = {name: each["dependencies"] for name, each in artifacts.items() if name.endswith("-monitoring")}
    assert found
    for name, before in found.items():
        deployment = name.removesuffix("-monitoring")
        assert {f"{deployment}-ingest", f"{deployment}-maintenance"} <= set(before)


def test_an_export_that_is_given_up_is_told_to_the_operators(synthesized):
    rules = synthesized.find("trading-monitoring", "AWS::Events::Rule").values()
    (found,) = [each["EventPattern"] for each in rules if each["EventPattern"]["source"] == ["calve"]]
    assert found == {
        "source": ["calve"],
        "detail-type": ["calve.export.failed"],
        "detail": {"deployment": ["trading"]},
    }


def test_values_to_alert_on_have_a_rule_each_that_mails_once(synthesized):
    rules = {
        name: rule
        for name, rule in synthesized.find("shop-monitoring", "AWS::Events::Rule").items()
        if rule["EventPattern"]["source"] == ["calve"]
    }
    (topic,) = synthesized.find("shop-monitoring", "AWS::SNS::Topic")
    said = [each["EventPattern"]["detail"] for each in rules.values()]
    assert said == [
        {
            "deployment": ["shop"],
            "table": ["orders"],
            "again": [False],
            "counts": {"values": {value: [{"exists": True}]}},
        }
        for value in ("LOST", "STOLEN")
    ]
    policy = synthesized.one("shop-monitoring", "AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    sources = [
        each["Condition"]["ArnLike"]["aws:SourceArn"] for each in policy if "ArnLike" in each["Condition"]
    ]
    for name, rule in rules.items():
        (target,) = rule["Targets"]
        assert target["Arn"] == {"Ref": topic}
        assert "<table> has rows with status " in target["InputTransformer"]["InputTemplate"]
        assert {"Fn::GetAtt": [name, "Arn"]} in sources


def test_the_tables_of_an_expression_share_alarms_and_a_topic_that_is_not_kept_has_one(
    synthesized, written, log
):
    filters = synthesized.find("shop-monitoring", "AWS::Logs::MetricFilter").values()
    alarms = synthesized.find("shop-monitoring", "AWS::CloudWatch::Alarm").values()
    by_name = {each["AlarmName"].removeprefix("shop-main-"): each for each in alarms}

    def seen(line):
        """What each shared alarm sees of a line."""
        measured = metrics(filters, line)
        watched = ((each["Namespace"], each["MetricName"], ()) for each in by_name.values())
        return {
            name: measured[metric]
            for name, metric in zip(by_name, watched, strict=True)
            if metric in measured and "Dimensions" not in by_name[name]
        }

    table = "orders.shop_users"
    assert seen(written("round.committed", table, dead_letters={}, skipped={}, **NUMBERS)) == {
        "tables-freshness": 2,
        "tables-lag": 2,
        "tables-lost": 1,
    }
    state = written("table.state", table, state="failed", code="retries_exhausted", reason="r", fix=None)
    assert seen(state) == {"tables-state": 1}
    assert seen(log("topic.refused", job="main", topic="shop.-", entry="shop_{1}", reason="r", fix="f")) == {
        "topics-not-kept": 1
    }


def test_the_dashboard_searches_for_tables_that_nobody_knows_yet(synthesized):
    body = text(synthesized.one("shop-monitoring", "AWS::CloudWatch::Dashboard")["DashboardBody"])
    assert r"SEARCH('{calve/shop,Table} MetricName=\"Freshness\"', 'Maximum')" in body
    known = text(synthesized.one("trading-monitoring", "AWS::CloudWatch::Dashboard")["DashboardBody"])
    assert "SEARCH" not in known
