import json

import pytest

from calve.config.publishing import Export
from calve.errors import ConfigError
from calve.settings import load_deployment
from stacks.publishing.exports import ROTATION_DAYS
from tests.synth.conftest import text
from tests.synth.deployments import WEEKLY

LINKS = """\
name: trading
kafka: {{bootstrap_servers: "b:9092"}}
registry: {{url: "https://r"}}
tables: {{trades: {{topic: trades}}}}
exports:
  weekly: {{table: trades, schedule: rate(7 days), recipients: [a@example.com], link: {{days: {days}}}}}
"""


def test_an_export_is_started_in_its_own_time_zone_with_its_planned_time(synthesized):
    schedule = synthesized.one("trading-exports", "AWS::Scheduler::Schedule")
    assert (schedule["Name"], schedule["GroupName"]) == ("trading-weekly_trades", "trading")
    assert schedule["ScheduleExpression"] == "cron(0 6 ? * MON *)"
    assert schedule["ScheduleExpressionTimezone"] == "Europe/Vilnius"
    given = json.loads(schedule["Target"]["Input"])
    assert given["scheduled_at"] == "<aws.scheduler.scheduled-time>"
    assert Export.from_json(json.dumps(given["export"])) == WEEKLY


def test_only_the_creation_of_a_manifest_sends_mail(synthesized):
    patterns = [
        each["EventPattern"] for each in synthesized.find("trading-exports", "AWS::Events::Rule").values()
    ]
    (written,) = [each for each in patterns if each["source"] == ["aws.s3"]]
    assert written["detail-type"] == ["Object Created"]
    assert written["detail"]["object"]["key"] == [{"wildcard": "exports/*/manifest.json"}]
    assert text(written["detail"]["bucket"]["name"][0]) == "trading-lake-<AccountId>-<Region>"
    (failed,) = [each for each in patterns if each["source"] == ["calve"]]
    assert failed["detail"] == {"deployment": ["trading"]}


def test_an_export_finds_and_reads_its_table_where_the_database_is_named_after_a_cluster(synthesized):
    (name,) = (
        each
        for each in synthesized.find("streams-exports", "AWS::IAM::Role")
        if each.startswith("WriterExport")
    )
    policies = synthesized.find("streams-exports", "AWS::IAM::Role")[name]["Policies"]
    statements = [each for policy in policies for each in policy["PolicyDocument"]["Statement"]]
    (glue,) = (each for each in statements if "glue:GetDatabases" in each["Action"])
    found = [text(each).rpartition(":")[2] for each in glue["Resource"]]
    assert found == ["catalog", "database/*", "table/*/*"]
    reads = [each["Resource"] for each in statements if each["Action"] == "s3:GetObject"]
    assert any(text(each).endswith("/*") and "exports" not in text(each) for each in reads)


def test_every_recipient_is_subscribed(synthesized):
    subscriptions = synthesized.find("trading-exports", "AWS::SNS::Subscription").values()
    assert {(each["Protocol"], each["Endpoint"]) for each in subscriptions} == {
        ("email", address) for address in WEEKLY.recipients
    }


def test_the_public_endpoint_is_one_function_that_reads_exports_alone(synthesized):
    (url,) = synthesized.find("trading-exports", "AWS::Lambda::Url").values()
    assert url["AuthType"] == "NONE"
    assert not any(
        synthesized.find(stack, "AWS::Lambda::Url") for stack in ("trading-lake", "trading-ingest")
    )
    functions = synthesized.find("trading-exports", "AWS::Lambda::Function")
    (id,) = [id for id in functions if functions[id]["Handler"] == "lambdas.download.handler.handle"]
    # An account with the first quota of 10 has none to reserve.
    assert not [id for id in functions if "ReservedConcurrentExecutions" in functions[id]]
    role = synthesized.templates["trading-exports"]["Resources"][functions[id]["Role"]["Fn::GetAtt"][0]]
    allowed = [
        (action, text(each["Resource"]))
        for each in role["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
        for action in ([each["Action"]] if isinstance(each["Action"], str) else each["Action"])
        if action.startswith("s3:")
    ]
    assert [action for action, _ in allowed] == ["s3:GetObject"]
    assert allowed[0][1].endswith("/exports/*")


def test_no_link_is_allowed_to_outlive_the_key_that_signed_it(tmp_path):
    config = tmp_path / "calve.yaml"
    for days, refused in ((ROTATION_DAYS, False), (ROTATION_DAYS + 1, True)):
        config.write_text(LINKS.format(days=days))
        if refused:
            with pytest.raises(ConfigError, match=r"link\.days"):
                load_deployment(config)
        else:
            assert load_deployment(config).exports[0].link_days == days


def test_link_keys_rotate_and_links_expire(synthesized):
    rotation = synthesized.one("trading-exports", "AWS::SecretsManager::RotationSchedule")
    assert rotation["RotationRules"] == {"AutomaticallyAfterDays": 30}
    tables = synthesized.find("trading-exports", "AWS::DynamoDB::Table").values()
    expires = {each["TimeToLiveSpecification"]["AttributeName"] for each in tables}
    assert expires == {"expires_at", "expiration"}


def test_mail_by_ses_has_one_sender_and_no_topic(synthesized):
    assert not synthesized.find("guest-exports", "AWS::SNS::Topic")
    sending = [
        each
        for role in synthesized.find("guest-exports", "AWS::IAM::Role").values()
        for policy in role.get("Policies", [])
        for each in policy["PolicyDocument"]["Statement"]
        if each["Action"] == "ses:SendEmail"
    ]
    assert sending[0]["Condition"] == {"StringEquals": {"ses:FromAddress": ["reports@example.com"]}}


def test_exports_with_private_links_have_no_public_address_no_links_and_no_keys(synthesized):
    for type in ("Lambda::Url", "SecretsManager::Secret", "SecretsManager::RotationSchedule"):
        assert synthesized.find("trading-exports", f"AWS::{type}")
        assert not synthesized.find("streams-exports", f"AWS::{type}")
    assert len(synthesized.find("streams-exports", "AWS::DynamoDB::Table")) == 1
    functions = synthesized.find("streams-exports", "AWS::Lambda::Function").values()
    assert sorted(each["Handler"] for each in functions) == [
        "lambdas.csv_export.handler.handle",
        "lambdas.export_notify.handler.handle",
    ]
    alarms = synthesized.find("streams-monitoring", "AWS::CloudWatch::Alarm").values()
    assert not [each for each in alarms if "link" in text(each["AlarmName"])]


def test_a_deployment_without_exports_has_no_exports_stack(synthesized):
    assert "shop-exports" not in synthesized.templates
