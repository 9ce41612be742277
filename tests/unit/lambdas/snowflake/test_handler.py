"""CloudFormation's side: one resource for an account, whatever its settings become, and the words of a failure."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from calve.config.publishing import Snowflake
from lambdas.publish_states import PublishStates, Target
from lambdas.snowflake.objects import handle
from lambdas.snowflake.sql_api import stored
from tests.unit.lambdas.cloudformation import CloudFormation, cloudformation
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.snowflake.world import ADMIN, LAKE, SERVICE, World
from tests.unit.lambdas.states_table import NAME, make_states_table

DATABASE = ("DATABASE", ("TRADING",))


@pytest.fixture
def cfn(snow: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudFormation]:
    secrets = snow.client("secretsmanager")
    secrets.create_secret(Name="snowflake/admin", SecretString=json.dumps({"private_key": ADMIN.to_pem()}))
    secrets.create_secret(Name="key", SecretString="generated")
    s3 = snow.client("s3")
    s3.create_bucket(Bucket="files", CreateBucketConfiguration={"LocationConstraint": "eu-north-1"})
    s3.put_object(Bucket="files", Key="tables.json", Body='["trading.trades", "trading.users"]')
    monkeypatch.setenv("KEY_SECRET", "key")
    monkeypatch.setenv("STATES_TABLE", NAME)
    make_states_table("eu-north-1")
    with cloudformation() as side:
        yield side


def properties(config: Snowflake) -> dict[str, Any]:
    return {
        "Deployment": "trading",
        "Settings": config.to_json(),
        "Location": LAKE.location,
        "Database": LAKE.database,
        "VolumeRole": LAKE.volume_role,
        "CatalogRole": LAKE.catalog_role,
        "ExternalId": LAKE.external_id,
        "TablesFile": "s3://files/tables.json",
    }


def request(
    side: CloudFormation, kind: str, config: Snowflake, old: Snowflake | None = None
) -> dict[str, Any]:
    more: dict[str, Any] = {} if kind == "Create" else {"PhysicalResourceId": "trading@myorg-myaccount"}
    if old:
        more["OldResourceProperties"] = properties(old)
    asked = side.request(kind, properties(config), **more)
    region = "arn:aws:cloudformation:eu-north-1:123456789012:stack/trading-publish/1"
    handle(asked | {"StackId": region}, Context())
    return side.answers[-1]


def test_the_life_of_a_resource(snow: World, cfn: CloudFormation) -> None:
    answer = request(cfn, "Create", snow.config)
    assert (answer["Status"], answer["Reason"]) == ("SUCCESS", "")
    assert answer["Data"] == {"IamUserArn": "arn:aws:iam::123456789001:user/abc1-b-self1234"}
    pair = stored(snow.client("secretsmanager").get_secret_value(SecretId="key")["SecretString"])
    assert pair
    assert list(snow.account.public_keys("CALVE_TRADING")) == [pair.fingerprint]

    states = PublishStates(NAME, snow.client("dynamodb"))
    assert {each.table for each in states.all(Target.SNOWFLAKE)} == {"trading.trades", "trading.users"}

    other = snow.having(database="LAKE", schema="RAW").config
    changed = request(cfn, "Update", other, old=snow.config)
    assert changed["PhysicalResourceId"] == answer["PhysicalResourceId"]
    assert DATABASE not in snow.account.rights.objects
    assert ("SCHEMA", ("LAKE", "RAW")) in snow.account.rights.objects
    assert list(snow.account.public_keys("CALVE_TRADING")) == [pair.fingerprint]

    assert request(cfn, "Delete", other)["Status"] == "SUCCESS"
    assert {kind for kind, _ in snow.account.rights.objects} == {"ROLE", "USER"}
    assert list(states.all()) == []


def test_a_failure_is_told_in_snowflakes_words_and_its_delete_leaves_nothing(
    snow: World, cfn: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lambdas.snowflake.objects.VERIFY_S", 0.0)
    snow.client("iam").delete_role_policy(RoleName="catalog", PolicyName="Work")
    answer = request(cfn, "Create", snow.config)
    assert answer["Status"] == "FAILED"
    assert "catalog is not authorized to perform: glue:GetCatalog" in answer["Reason"]
    assert request(cfn, "Delete", snow.config)["Status"] == "SUCCESS"
    assert {kind for kind, _ in snow.account.rights.objects} == {"ROLE", "USER"}


def test_a_secret_without_a_key_is_told_without_its_text(snow: World, cfn: CloudFormation) -> None:
    snow.client("secretsmanager").put_secret_value(
        SecretId="snowflake/admin", SecretString=json.dumps({"private_key": "do not tell"})
    )
    answer = request(cfn, "Create", snow.config)
    assert "no unencrypted RSA key in PEM" in answer["Reason"]
    assert "do not tell" not in json.dumps(answer)


def test_a_create_that_could_not_log_in_is_deleted_without_logging_in(
    snow: World, cfn: CloudFormation
) -> None:
    pem = json.dumps({"private_key": SERVICE.to_pem()})
    snow.client("secretsmanager").put_secret_value(SecretId="snowflake/admin", SecretString=pem)
    answer = request(cfn, "Create", snow.config)
    assert "does not let DEPLOYER in" in answer["Reason"]
    rollback = cfn.request("Delete", properties(snow.config), PhysicalResourceId=answer["PhysicalResourceId"])
    handle(rollback, Context())
    assert cfn.answers[-1]["Status"] == "SUCCESS"
