import json

import pytest

from calve.log import event
from stacks.monitoring.job_metrics import OF_JOB, OF_MAINTENANCE, OF_TABLES
from tests.integration.support.events import documented
from tests.synth.conftest import text
from tests.synth.log_filters import metrics
from tests.synth.test_lake import listed, statements

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
    of_tables = tuple(f"tables-{what}" for what in ("state", "lag", "lost", "paused"))
    troubles = ("dead-letters", "failed", "announcements", "maintenance-failed", *of_tables)
    of_jobs = {f"{job}-{what}" for job in ("main", "nightly") for what in troubles}
    of_schedules = {"job-not-started", "export-not-started", "maintenance-not-started", "start-errors"}
    of_exports = {f"export-{what}" for what in ("errors", "mail-errors", "link-faults")}
    of_exports |= {f"weekly_trades-{what}" for what in ("late", "mail-undelivered")}
    of_running = {f"main-{what}" for what in ("silent", "given-up", "tables-silent", "tables-freshness")}
    of_running |= {"watchdog-errors"}
    of_keys = {f"{keys}-keys-not-rotated" for keys in ("kafka", "emit", "registry", "link", "snowflake")}
    followed = ("failed", "reconcile-errors", "messages-failed")
    of_catalog = {f"{target}-{what}" for target in ("catalog", "delta", "lineage") for what in followed}
    of_snowflake = {
        f"snowflake-{what}" for what in ("failed", "lag", "stuck", "not-reconciled", "messages-failed")
    }
    of_lake = of_jobs | of_schedules | of_running
    assert names == of_lake | of_exports | of_keys | of_catalog | of_snowflake
    (topic,) = synthesized.find("trading-monitoring", "AWS::SNS::Topic")
    assert all(each["AlarmActions"] == [{"Ref": topic}] for each in alarms)
    subscription = synthesized.one("trading-monitoring", "AWS::SNS::Subscription")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")


@pytest.fixture
def seen(synthesized):
    """Alarm -> what it sees of a line of its job's log."""

    def look(deployment, line):
        filters = synthesized.filters(deployment)
        measured = metrics(filters, line)
        alarms = synthesized.find(f"{deployment}-monitoring", "AWS::CloudWatch::Alarm").values()
        return {
            each["AlarmName"].removeprefix(f"{deployment}-main-"): measured[metric]
            for each in alarms
            if (metric := (each["Namespace"], each["MetricName"], ())) in measured
        }

    return look


@pytest.mark.parametrize(
    ("deployment", "table"),
    [
        ("trading", "trading.stock_trades"),
        ("streams", "mkuaxgq4rv2bzfsxmfd0eq.orders"),
        ("shop", "orders.shop_users"),
    ],
    ids=["database", "cluster_id", "of an expression"],
)
def test_the_alarms_of_tables_watch_what_their_events_become(seen, written, log, deployment, table):
    round_ = written("round.committed", table, dead_letters={"malformed": 3}, skipped={}, **NUMBERS)
    found = {name: value for name, value in seen(deployment, round_).items() if "nightly" not in name}
    assert found == {"tables-freshness": 2, "tables-lag": 2, "tables-lost": 1, "dead-letters": 1}
    state = written("table.state", table, state="suspended", code="topic_recreated", reason="r", fix=None)
    assert seen(deployment, state)["tables-state"] == 1
    alive = log("job.tables", job="main", states={"running": 9}, silent=3, names=["a", "b", "c"])
    assert seen(deployment, alive) == {"silent": 1, "tables-silent": 3}


def test_a_round_without_rejects_or_loss_is_no_trouble(synthesized, written):
    filters = synthesized.filters("trading")
    line = written("round.committed", "trading.users", dead_letters={}, skipped={}, **(NUMBERS | {"lost": 0}))
    found = {metric.partition(".")[0] for _, metric, _ in metrics(filters, line)}
    assert found == {"Freshness", "Lateness", "Lag", "Rows"}


def test_only_silence_is_taken_for_trouble_where_there_is_no_data(synthesized):
    alarms = synthesized.find("trading-monitoring", "AWS::CloudWatch::Alarm").values()
    breaching = {each["AlarmName"] for each in alarms if each["TreatMissingData"] == "breaching"}
    assert breaching == {"trading-main-silent"}
    (silent,) = [each for each in alarms if each["AlarmName"] == "trading-main-silent"]
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
    filters = synthesized.filters("trading")
    assert len(filters) == 2 * (len(OF_JOB) + len(OF_TABLES) + len(OF_MAINTENANCE))
    for part in ("ingest", "maintenance"):
        for each in synthesized.find(f"trading-{part}", "AWS::Logs::MetricFilter").values():
            assert ("maintenance" in each["FilterPattern"]) == (part == "maintenance")


def test_a_filter_is_made_after_the_log_group_that_it_filters(synthesized):
    for part in ("ingest", "maintenance"):
        resources = synthesized.templates[f"trading-{part}"]["Resources"]
        groups = {
            json.dumps(each["Properties"]["LogGroupName"]): id
            for id, each in resources.items()
            if each["Type"] == "AWS::Logs::LogGroup" and "LogGroupName" in each["Properties"]
        }
        filters = [each for each in resources.values() if each["Type"] == "AWS::Logs::MetricFilter"]
        assert filters
        for each in filters:
            assert groups[json.dumps(each["Properties"]["LogGroupName"])] in each["DependsOn"]


def test_an_export_that_is_given_up_is_told_to_the_operators(synthesized):
    rules = synthesized.find("trading-monitoring", "AWS::Events::Rule").values()
    (found,) = [
        each["EventPattern"]
        for each in rules
        if each["EventPattern"]["detail-type"] == ["calve.export.failed"]
    ]
    assert found == {
        "source": ["calve"],
        "detail-type": ["calve.export.failed"],
        "detail": {"deployment": ["trading"]},
    }


def test_a_commit_with_values_to_alert_on_and_a_table_that_stops_are_mailed(synthesized):
    (topic,) = synthesized.find("shop-monitoring", "AWS::SNS::Topic")
    policy = synthesized.one("shop-monitoring", "AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    sources = [
        each["Condition"]["ArnLike"]["aws:SourceArn"] for each in policy if "ArnLike" in each["Condition"]
    ]
    told = {}
    for name, rule in synthesized.find("shop-monitoring", "AWS::Events::Rule").items():
        if rule["EventPattern"]["source"] == ["calve"]:
            (target,) = rule["Targets"]
            assert target["Arn"] == {"Ref": topic}
            assert {"Fn::GetAtt": [name, "Arn"]} in sources
            (kind,) = rule["EventPattern"]["detail-type"]
            told[kind] = rule["EventPattern"]["detail"]
    assert told == {
        "calve.table.committed": {"deployment": ["shop"], "again": [False], "alert": [{"exists": True}]},
        "calve.table.suspended": {
            "deployment": ["shop"],
            "code": [{"anything-but": ["retries_exhausted"]}],
        },
    }


def test_a_topic_that_no_table_can_be_named_after_has_an_alarm(seen, log):
    line = log("topic.refused", job="main", topic="shop.-", entry="shop_{1}", reason="r", fix="f")
    assert seen("shop", line) == {"topics-not-kept": 1}


def test_an_expectation_that_is_missed_has_an_alarm_where_a_table_has_one(seen, log):
    line = log(
        "expectation.missed", table="d.orders", topic="t", condition="quantity > 0", met=0.5, at_least=0.999
    )
    assert seen("shop", line) == {"tables-expectations": 1}
    assert seen("trading", line) == {}


def test_a_table_is_late_by_its_own_promise_or_by_the_age_that_alerts_name(synthesized):
    late = {
        name: (alarm["MetricName"], alarm["Threshold"])
        for name in ("trading", "shop")
        for alarm in synthesized.find(f"{name}-monitoring", "AWS::CloudWatch::Alarm").values()
        if alarm["AlarmName"] == f"{name}-main-tables-freshness"
    }
    assert late == {"trading": ("Lateness.main", 2), "shop": ("Freshness.main", 300)}


def test_the_dashboard_has_the_region_in_its_name_since_an_account_has_one_list_of_them(synthesized):
    template = synthesized.templates["trading-monitoring"]
    made = synthesized.one("trading-monitoring", "AWS::CloudWatch::Dashboard")
    name = text(made["DashboardName"])
    assert name == text(template["Outputs"]["DashboardName"]["Value"]) == "trading-<Region>"
    looking = [
        each
        for each in statements(synthesized.templates["trading-lake"])
        if "cloudwatch:GetDashboard" in each["Action"]
    ]
    (resource,) = {text(one) for each in looking for one in listed(each["Resource"])}
    assert resource == f"arn:<Partition>:cloudwatch::<AccountId>:dashboard/{name}"


def test_the_dashboard_asks_for_the_worst_tables(synthesized):
    body = text(synthesized.one("shop-monitoring", "AWS::CloudWatch::Dashboard")["DashboardBody"])
    assert r"FROM SCHEMA(\"calve/shop\", Table) GROUP BY Table ORDER BY MAX() DESC LIMIT 20" in body
    streams = text(synthesized.one("streams-monitoring", "AWS::CloudWatch::Dashboard")["DashboardBody"])
    assert "GROUP BY Topic" in streams
