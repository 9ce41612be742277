"""Rotations of keys: who may do what to which secret, and where the function stands."""

import json
from dataclasses import replace

import pytest

from calve.errors import ConfigError
from stacks.base.rotation import _authorities
from stacks.jobs.ingest_role import secret_statements
from tests.synth.conftest import text
from tests.synth.deployments import MADE
from tests.synth.test_lake import listed, statements


def functions(synthesized, stack):
    found = synthesized.find(stack, "AWS::Lambda::Function").values()
    return {each["Environment"]["Variables"]["SECRET"]: each for each in found}


def test_each_secret_has_a_schedule_and_a_function_of_its_own(synthesized):
    schedules = synthesized.find("trading-keys", "AWS::SecretsManager::RotationSchedule").values()
    days = {each["SecretId"]: each["RotationRules"]["AutomaticallyAfterDays"] for each in schedules}
    assert days == {"calve/kafka": 30, "calve/kafka-emit": 7, "calve/registry": 30}
    assert not any(each["RotateImmediatelyOnUpdate"] for each in schedules)
    made = functions(synthesized, "trading-keys")
    assert made["calve/kafka"]["Handler"] == "lambdas.keys.kafka.rotate"
    assert made["calve/registry"]["Handler"] == "lambdas.keys.cloud.rotate"
    registry = made["calve/registry"]["Environment"]["Variables"]
    assert (registry["KEYS_TO_RETAIN"], registry["REGISTRY"]) == ("3", "https://registry.example.com")
    kafka = json.loads(made["calve/kafka-emit"]["Environment"]["Variables"]["KAFKA"])
    assert kafka["bootstrap_servers"] == "broker:9093"
    assert kafka["secret"] == "aws:calve/kafka-emit"


def test_only_secrets_manager_on_behalf_of_the_secret_invokes_a_function(synthesized):
    permissions = synthesized.find("trading-keys", "AWS::Lambda::Permission").values()
    assert {each["Principal"] for each in permissions} == {"secretsmanager.amazonaws.com"}
    assert {text(each["SourceArn"]).rpartition(":secret:")[2] for each in permissions} == {
        "calve/kafka-??????",
        "calve/kafka-emit-??????",
        "calve/registry-??????",
    }


def test_a_function_reads_its_secret_and_that_of_the_admin_and_writes_its_own(synthesized):
    written, read = set(), set()
    for each in statements(synthesized.templates["trading-keys"]):
        resources = {text(resource).rpartition(":secret:")[2] for resource in listed(each["Resource"])}
        if "secretsmanager:PutSecretValue" in each["Action"]:
            written |= resources
        elif "secretsmanager:GetSecretValue" in each["Action"]:
            read |= resources
    assert written == {"calve/kafka-??????", "calve/kafka-emit-??????", "calve/registry-??????"}
    assert read == {"calve/kafka-admin-??????", "calve/cloud-??????"}


def test_a_function_of_brokers_in_a_network_stands_beside_the_jobs(synthesized):
    (made,) = functions(synthesized, "guest-keys").values()
    assert made["VpcConfig"] == {
        "SubnetIds": ["subnet-11111111", "subnet-22222222"],
        "SecurityGroupIds": ["sg-11111111"],
    }
    assert "ADMIN_SECRET" not in made["Environment"]["Variables"]
    assert "VpcConfig" not in functions(synthesized, "trading-keys")["calve/registry"]


def test_authorities_that_no_function_takes_are_refused(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("x" * 3_001)
    with pytest.raises(ConfigError, match="3001 bytes"):
        _authorities(str(file))
    file.write_text("x" * 3_000)
    assert len(_authorities(str(file))) == 3_000


def test_a_deployment_without_rotations_has_no_stack_of_keys(synthesized):
    assert "streams-keys" not in synthesized.templates


@pytest.mark.parametrize(
    ("secret", "uses_key"), [("aws:AmazonMSK_trading", True), ("aws:trading/kafka", False)]
)
def test_a_job_that_reads_a_secret_of_msk_may_use_its_key_by_secrets_manager_alone(secret, uses_key):
    of_job = MADE.jobs[0].settings
    found = secret_statements(replace(of_job, kafka=replace(of_job.kafka, secret=secret)))
    keys = [each for each in found if each.actions == ("kms:Decrypt",)]
    assert bool(keys) == uses_key
    assert all("kms:ViaService" in str(each.conditions) for each in keys)
