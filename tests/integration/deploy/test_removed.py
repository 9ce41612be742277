"""What a change of calve.yaml leaves out, deployed by the CDK CLI: it is gone with the next deploy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.embedded import aws
from cli.embedded.cdk import App
from cli.embedded.stack import Stack
from cli.progress import LineProgress
from tests.integration.support.deployed import CONFIG, EXPORTS, destroy

QUIET = LineProgress(lambda _: None)
NAME = "lessened"


@pytest.mark.long
def test_exports_that_calve_yaml_no_longer_has_are_removed_and_a_destroy_removes_the_rest_also_attached_policies(
    stack: Stack, tmp_path: Path
) -> None:
    config = tmp_path / "calve.yaml"
    for text in (CONFIG + EXPORTS, CONFIG):
        before = there(stack)
        config.write_text(text.format(name=NAME, topic="trades"))
        outputs = App(stack, config).deploy(QUIET)
    of_exports = {each for each in before if each.startswith((f"{NAME}-exports", f"{NAME}-weekly_"))}
    assert {f"{NAME}-exports", f"{NAME}-weekly_trades", f"{NAME}-weekly_sides"} <= of_exports
    assert there(stack) == before - of_exports - {f"{NAME}-export"}
    assert "tables are open" in " ".join(outputs[f"{NAME}-ingest"].values())
    iam, policy = aws.client("iam", stack.aws_endpoint), outputs[f"{NAME}-lake"]["ReadersPolicy"]
    trusted = {"Effect": "Allow", "Principal": {"Service": "glue.amazonaws.com"}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [trusted]})
    iam.create_role(RoleName="analyst", AssumeRolePolicyDocument=trust)
    iam.attach_role_policy(RoleName="analyst", PolicyArn=policy)
    destroy(App(stack, config), QUIET)
    assert iam.list_attached_role_policies(RoleName="analyst")["AttachedPolicies"] == []
    iam.delete_role(RoleName="analyst")
    assert there(stack) == set()


def there(stack: Stack) -> set[str]:
    """Names of the deployment's stacks, functions and schedules."""
    found = [
        *(
            each["StackName"]
            for each in aws.client("cloudformation", stack.aws_endpoint).describe_stacks()["Stacks"]
            if each["StackStatus"] != "DELETE_COMPLETE"
        ),
        *(
            each["FunctionName"]
            for page in aws.client("lambda", stack.aws_endpoint).get_paginator("list_functions").paginate()
            for each in page["Functions"]
        ),
        *(each["Name"] for each in aws.client("scheduler", stack.aws_endpoint).list_schedules()["Schedules"]),
    ]
    return {each for each in found if each.startswith(f"{NAME}-")}
