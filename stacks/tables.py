"""DynamoDB tables of small items that expire."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, aws_dynamodb
from constructs import Construct


def expiring_table(scope: Construct, id: str, *, expires: str) -> aws_dynamodb.Table:
    """A table keyed by `id`, whose items vanish at the epoch second in their attribute `expires`; it goes with its stack."""
    return aws_dynamodb.Table(
        scope,
        id,
        partition_key=aws_dynamodb.Attribute(name="id", type=aws_dynamodb.AttributeType.STRING),
        billing_mode=aws_dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute=expires,
        point_in_time_recovery_specification=aws_dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        removal_policy=RemovalPolicy.DESTROY,
    )
