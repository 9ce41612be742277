"""Rules that hold for every template."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.synth.conftest import text
from tests.synth.policy_linter import parliament
from tests.synth.test_lake import listed, statements

# Whoever may set a bucket's policy or lifecycle could let itself in: it is the function that makes the bucket.
ACCEPTED = {"RESOURCE_POLICY_PRIVILEGE_ESCALATION"}
SOURCED = {"glue.amazonaws.com", "scheduler.amazonaws.com"}
WILD = {
    *("xray:PutTraceSegments", "xray:PutTelemetryRecords", "cloudwatch:PutMetricData", "kms:CreateKey"),
    *("glue:GetSchemaVersion", "cloudwatch:GetMetricData", "cloudwatch:ListMetrics", "kms:ListAliases"),
    *("lakeformation:GetDataLakeSettings", "lakeformation:ListPermissions", "lakeformation:ListResources"),
    *("lakeformation:GrantPermissions", "lakeformation:RevokePermissions", "lakeformation:GetDataAccess"),
}


def test_no_action_is_a_wildcard_and_no_resource_is_everything_but_where_aws_has_no_other(synthesized):
    for template in synthesized.templates.values():
        for statement in statements(template):
            assert not [action for action in statement["Action"] if "*" in action]
            if "*" in statement["Resource"]:
                describing = all(action.startswith("ec2:Describe") for action in statement["Action"])
                assert describing or set(statement["Action"]) <= WILD, statement


def test_services_that_say_on_whose_behalf_they_act_are_asked(synthesized):
    for name, template in synthesized.templates.items():
        for resource in template["Resources"].values():
            if resource["Type"] != "AWS::IAM::Role":
                continue
            (trust,) = resource["Properties"]["AssumeRolePolicyDocument"]["Statement"]
            if trust["Principal"].get("Service") in SOURCED:
                assert trust["Condition"]["StringEquals"] == {
                    "aws:SourceAccount": {"Ref": "AWS::AccountId"}
                }, name
                # Nobody has seen the ARN that Glue sends, and a wrong one would end every run at its start.
                glue = trust["Principal"]["Service"] == "glue.amazonaws.com"
                assert ("aws:SourceArn" in trust["Condition"].get("ArnLike", {})) is not glue


def test_rules_of_cdk_nag_and_of_the_cdk_are_kept(synthesized):
    report = json.loads((synthesized.folder / "validation-report.json").read_text())
    assert {each["conclusion"] for each in report["pluginReports"]} == {"success"}


def test_cfn_lint_finds_nothing(synthesized):
    named = [each for each in synthesized.templates if each.startswith("trading-") or each == "streams-kafka"]
    files = [str(synthesized.folder / f"{each}.template.json") for each in named]
    # W3005, W3045: what the CDK writes by itself. W3010: an existing network is described with its zones.
    command = [
        str(Path(sys.executable).with_name("cfn-lint")),
        "--ignore-checks",
        "W3005",
        "W3045",
        "W3010",
        "--",
    ]
    done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_parliament_finds_nothing(synthesized):
    findings = []
    for stack, template in synthesized.templates.items():
        for statement in statements(template):
            plain = {
                "Effect": "Allow",
                "Action": statement["Action"],
                "Resource": [arn(text(each)) for each in statement["Resource"]],
            }
            if any(each.startswith("<") for each in plain["Resource"]):
                continue  # the ARN of a resource itself: there is no format to get wrong
            document = json.dumps({"Version": "2012-10-17", "Statement": [plain]})
            for finding in parliament.analyze_policy_string(document).findings:
                if finding.issue not in ACCEPTED:
                    findings.append((stack, finding.issue, plain["Action"], finding.detail))
    assert not findings


@pytest.mark.parametrize("action", ["s3:GetObjekt", "s3:*"])
def test_a_planted_mistake_would_be_found(action):
    planted = {"Effect": "Allow", "Action": action, "Resource": "arn:aws:glue:us-east-1:123456789012:catalog"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [planted]})
    assert parliament.analyze_policy_string(document).findings


def arn(resource):
    """A resource with values in place of its references, as parliament matches formats of ARNs."""
    known = {
        "<Partition>": "aws",
        "<Region>": "us-east-1",
        "<AccountId>": "123456789012",
        "<URLSuffix>": "amazonaws.com",
    }
    for reference, value in known.items():
        resource = resource.replace(reference, value)
    return resource if resource.startswith("<") else re.sub("<.*?>", "reference", resource)


def test_all_statements_are_looked_at(synthesized):
    assert (
        sum(len(listed(each["Action"])) for each in statements(synthesized.templates["trading-ingest"])) > 40
    )
