"""The table of `lambdas/publish_states.py`, inside `mock_aws`."""

import boto3

from lambdas.publish_states import PublishStates

NAME = "states"


def make_states_table(region: str = "us-east-1") -> PublishStates:
    client = boto3.client("dynamodb", region)
    keys = {"target": "HASH", "table": "RANGE"}
    client.create_table(
        TableName=NAME,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
    )
    return PublishStates(NAME, client)
