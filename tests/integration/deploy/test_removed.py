"""What a change of calve.yaml leaves out, deployed by the CDK CLI: it is gone with the next deploy."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.embedded import aws
from cli.embedded.stack import Stack
from cli.progress import LineProgress
from cli.run.stack import app
from tests.integration.support.deployed import CONFIG, EXPORTS, destroy

QUIET = LineProgress(lambda _: None)
NAME = "lessened"


@pytest.mark.long
def test_exports_that_calve_yaml_no_longer_has_are_removed_and_all_else_stays(
    stack: Stack, tmp_path: Path
) -> None:
    config = tmp_path / "calve.yaml"
    for text in (CONFIG + EXPORTS, CONFIG):
        before = there(stack)
        config.write_text(text.format(name=NAME, topic="trades"))
        app(stack, config).deploy(QUIET)
    of_exports = {each for each in before if each.startswith((f"{NAME}-exports", f"{NAME}-weekly_"))}
    assert {f"{NAME}-exports", f"{NAME}-weekly_trades", f"{NAME}-weekly_sides"} <= of_exports
    assert there(stack) == before - of_exports - {f"{NAME}-export"}
    destroy(app(stack, config), QUIET)
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
