"""Takes the deployment's policies from the roles, users and groups that people gave them to, when the stack is destroyed.

IAM deletes no policy that is attached, so the destroy would fail there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from botocore.exceptions import ClientError

from calve.errors import CalveError
from lambdas.aws import code_of, tolerating
from lambdas.custom_resource import handler_of, stack_status
from lambdas.function import from_properties

SERVICE = "lake_attachments"
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
HOLDERS = (("PolicyRoles", "Role"), ("PolicyUsers", "User"), ("PolicyGroups", "Group"))


@dataclass(frozen=True, slots=True)
class Attachments:
    """The properties of the custom resource. attached: ARNs of policies."""

    deployment: str
    attached: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"attachments-of-{self.deployment}"


def detach(policies: Sequence[str], iam: Any) -> None:
    """Detach the policies from all that have them; can be repeated.

    Raises:
        CalveError: a role is protected, as those of Identity Center are.
    """
    protected = []
    for policy in policies:
        for kind, name in _holders(policy, iam):
            take = getattr(iam, f"detach_{kind.lower()}_policy")
            try:
                with tolerating("NoSuchEntity"):
                    take(**{f"{kind}Name": name}, PolicyArn=policy)
            except ClientError as error:
                if code_of(error) != "UnmodifiableEntity":
                    raise
                protected.append(f"{policy.rpartition('/')[2]} from {name}")
    if protected:
        raise CalveError(
            f"IAM lets only their owner take the policies {', '.join(protected)}",
            fix="take the policies from their permission sets in Identity Center, then destroy again",
        )


def _holders(policy: str, iam: Any) -> list[tuple[str, str]]:
    """Kind and name of all that the policy is attached to."""
    pages = iam.get_paginator("list_entities_for_policy").paginate(
        PolicyArn=policy, PolicyUsageFilter="PermissionsPolicy"
    )
    return [
        (kind, each[f"{kind}Name"])
        for page in pages
        for listed, kind in HOLDERS
        for each in page.get(listed, [])
    ]


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    attachments = from_properties(Attachments, request.resource_properties)
    if request.request_type != "Delete":
        return
    if stack_status(request.stack_id, boto3.client("cloudformation")) == "DELETE_IN_PROGRESS":
        detach(attachments.attached, boto3.client("iam"))


handle = handler_of(
    _act,
    identify=lambda properties: from_properties(Attachments, properties).id,
    logger=logger,
    tracer=tracer,
    failed="policies.not_detached",
)
