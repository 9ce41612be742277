"""Findings of cdk-nag that are as they must be, each with its reason beside the construct."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from constructs import Construct


def acknowledge(construct: Construct, reasons: dict[str, str]) -> None:
    """Accept findings such as `IAM5[Resource::*]`, by reason, on a construct and all below it."""
    Validations.of(construct).acknowledge(
        *(
            Acknowledgment(id=f"AwsSolutions::AwsSolutions-{finding}", reason=reason)
            for finding, reason in reasons.items()
        )
    )
