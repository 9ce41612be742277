"""publish.snowflake as templates: whom the roles trust, and who may change that."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from aws_cdk import App

from calve.config.publishing import Publish, Snowflake
from calve.errors import ConfigError
from stacks.app import build
from stacks.base.bundling import Runtime, bundle_of
from tests.synth.conftest import Synthesized, text
from tests.synth.deployments import MADE, MSK, SNOWFLAKE
from tests.synth.test_lake import statements

USER = "arn:aws:iam::123456789001:user/abc1-b-self1234"


def synthesized_with(tmp_path: Path, config: Snowflake, deployment=MADE) -> Synthesized:
    app = App(outdir=str(tmp_path), context={"aws:cdk:bundling-stacks": []})
    build(app, replace(deployment, publish=Publish((), snowflake=config)), runtime=Runtime())
    app.synth()
    name = f"{deployment.name}-publish"
    return Synthesized(tmp_path, {name: json.loads((tmp_path / f"{name}.template.json").read_text())})


def trusts(found: Synthesized) -> dict[str, dict]:
    roles = found.find("trading-publish", "AWS::IAM::Role")
    said = {id: each["AssumeRolePolicyDocument"]["Statement"][0] for id, each in roles.items()}
    return {id: each for id, each in said.items() if "AWS" in each["Principal"]}


def test_both_roles_trust_nobody_until_snowflake_has_said_who_it_is(synthesized):
    found = trusts(synthesized)
    assert len(found) == 2
    for each in found.values():
        assert text(each["Principal"]["AWS"]).endswith(":root")
        assert text(each["Condition"]["StringEquals"]["sts:ExternalId"]).startswith("nobody-calve-")


def test_one_function_may_change_the_trust_of_these_two_roles_and_of_no_other(synthesized):
    changing = [
        each
        for each in statements(synthesized.templates["trading-publish"])
        if "iam:UpdateAssumeRolePolicy" in each["Action"]
    ]
    (only,) = changing
    assert sorted(map(text, only["Resource"])) == sorted(f"<{id}.Arn>" for id in trusts(synthesized))
    assert only["Action"] == ["iam:UpdateAssumeRolePolicy"]


def test_where_the_user_is_named_trust_is_static_and_nobody_may_change_it(tmp_path):
    found = synthesized_with(tmp_path, replace(SNOWFLAKE, iam_user_arn=USER))
    for each in trusts(found).values():
        assert each["Principal"]["AWS"] == USER
        assert text(each["Condition"]["StringEquals"]["sts:ExternalId"]).startswith("calve-")
    assert "UpdateAssumeRolePolicy" not in json.dumps(found.templates)


def test_the_roles_can_read_and_nothing_else(synthesized):
    roles = synthesized.find("trading-publish", "AWS::IAM::Role")
    actions = {
        action
        for id in trusts(synthesized)
        for policy in roles[id]["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert actions == {
        *("s3:GetObject", "s3:GetObjectVersion", "s3:ListBucket", "s3:GetBucketLocation", "kms:Decrypt"),
        *("glue:GetCatalog", "glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables"),
    }


def test_a_linked_database_with_a_namespace_for_each_cluster_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="needs to know its namespace"):
        synthesized_with(tmp_path, replace(SNOWFLAKE, tables="linked_database"), MSK)


def test_a_secret_that_no_function_can_read_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the secret env:KEY"):
        synthesized_with(tmp_path, replace(SNOWFLAKE, secret="env:KEY"))


def test_the_functions_share_what_they_share():
    sources = {file.parent.name for file in bundle_of("snowflake", Runtime()).sources}
    assert {"snowflake", "lambdas"} <= sources
    assert not {"lake", "csv_export"} & sources
