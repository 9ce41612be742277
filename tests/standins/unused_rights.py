"""Lists the rights of a running deployment's roles that no request has used since the emulator started.

`python -m tests.standins.unused_rights NAME`, after whatever is to use them. A right that is listed may still be needed: AWS
itself uses some in the role's name, and trouble others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from cli.embedded import aws
from cli.embedded.layout import Layout, project_root
from cli.embedded.stack import current
from tests.synth.evaluator import Statement
from tests.synth.test_lake import listed

Use = tuple[str, str, str, str]
"""Role, action, resource, verdict."""
OF_LAMBDA = ("logs:", "xray:")


def unused(iam: Any, begins: str, uses: Iterable[Use]) -> Iterator[tuple[str, str, str]]:
    """Role, action and resource of each right that has no use. begins: the roles' names."""
    used: dict[str, list[tuple[str, str]]] = {}
    for role, action, resource, verdict in uses:
        if verdict == "allowed":
            used.setdefault(role, []).append((action, resource))
    for page in iam.get_paginator("list_roles").paginate():
        for role in (each["RoleName"] for each in page["Roles"]):
            if role.startswith(begins):
                for right in rights_of(iam, role):
                    if not any(right.covers(*each) for each in used.get(role, ())):
                        yield role, right.actions[0], right.resources[0]


def rights_of(iam: Any, role: str) -> Iterator[Statement]:
    """One for each action and resource of the role's own policies."""
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        policy = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for each in policy["Statement"]:
            if each["Effect"] == "Allow":
                for action in listed(each["Action"]):
                    for resource in listed(each["Resource"]):
                        yield Statement("Allow", (action,), (resource,), (False, False), None)


def main(deployment: str) -> None:
    stack = current(project_root())
    if stack is None:
        raise SystemExit("the embedded stack is not up: calve up")
    lines = (Layout(stack.root).run / "aws" / "rights.jsonl").read_text().splitlines()
    iam, begins = aws.client("iam", stack.aws_endpoint), f"{deployment}-"
    for role, action, resource in unused(iam, begins, map(json.loads, lines)):
        if not action.startswith(OF_LAMBDA):
            print(role.removeprefix(begins), action, resource)  # noqa: T201 a report


if __name__ == "__main__":
    main(sys.argv[1])
