"""The resources of a deployed stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cli.lake import aws_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.account import Account


@dataclass(frozen=True, slots=True)
class Resource:
    """type: CloudFormation's, such as `AWS::Lambda::Function`. logical: its id in the template. id: what the service calls it."""

    type: str
    logical: str
    id: str


def resources(account: Account, stack: str) -> Iterator[Resource]:
    """Those of a stack; none of one that is not deployed.

    Raises:
        Retryable, Fatal: AWS does not answer, or refuses.
    """
    pages = account.client("cloudformation").get_paginator("list_stack_resources")
    with aws_errors(f"the stack {stack}"):
        try:
            found = [
                each for page in pages.paginate(StackName=stack) for each in page["StackResourceSummaries"]
            ]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationError":
                raise
            return
    for each in found:
        yield Resource(each["ResourceType"], each["LogicalResourceId"], each.get("PhysicalResourceId", ""))
