"""DynamoDB tables of small items."""

from __future__ import annotations

from typing import Any

from aws_cdk import RemovalPolicy, aws_dynamodb
from constructs import Construct


def expiring_table(scope: Construct, id: str, *, expires: str) -> aws_dynamodb.Table:
    """A table keyed by `id`, whose items vanish at the epoch second in their attribute `expires`; it goes with its stack."""
    return _table(scope, id, "id", time_to_live_attribute=expires)


def table_of_states(scope: Construct, id: str) -> aws_dynamodb.Table:
    """What `lambdas/publish_states.py` keeps: one item for each target and table; it goes with its stack."""
    return _table(scope, id, "target", sort_key=_text("table"))


def _table(scope: Construct, id: str, key: str, **options: Any) -> aws_dynamodb.Table:
    return aws_dynamodb.Table(
        scope,
        id,
        partition_key=_text(key),
        billing_mode=aws_dynamodb.BillingMode.PAY_PER_REQUEST,
        point_in_time_recovery_specification=aws_dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        removal_policy=RemovalPolicy.DESTROY,
        **options,
    )


def _text(name: str) -> aws_dynamodb.Attribute:
    return aws_dynamodb.Attribute(name=name, type=aws_dynamodb.AttributeType.STRING)
