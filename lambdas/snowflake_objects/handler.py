"""CloudFormation's requests for a deployment's objects in Snowflake."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.config.publishing import Snowflake
from calve.secrets import read_secret, value_of
from lambdas.custom_resource import serve
from lambdas.publish_states import PublishState, PublishStates, State, Target
from lambdas.snowflake.sql import Lake
from lambdas.snowflake.sql_api import administrator, first
from lambdas.snowflake_objects.objects import VERIFY_S, Wanted, establish, make, of_volume, remove, verify

logger = Logger(service="snowflake_objects")
tracer = Tracer(service="snowflake_objects")


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
def handle(event: Mapping[str, Any], context: LambdaContext) -> None:
    """Create or change the objects; a delete removes those of the deployment."""
    if reason := serve(event, context, _act, identify=_known):
        logger.error("snowflake.failed", extra={"reason": reason})


def _known(properties: Mapping[str, Any]) -> str:
    """The resource's id, after its administrator has logged in: if nobody can, there is nothing that a delete must drop."""
    administrator(Snowflake.from_json(properties["Settings"])).value("SELECT CURRENT_USER()")
    return _id(properties)


def _id(properties: Mapping[str, Any]) -> str:
    """Of the account alone: other settings of the same account are changed in place."""
    return f"{properties['Deployment']}@{Snowflake.from_json(properties['Settings']).account}"


def _act(request: CloudFormationCustomResourceEvent, *, time_left_s: float) -> dict[str, str]:
    wanted = read(request.resource_properties, request.stack_id)
    session = administrator(wanted.config)
    states = PublishStates(os.environ["STATES_TABLE"], boto3.client("dynamodb"))
    if request.request_type == "Delete":
        kept = remove(session, wanted)
        for each in list(states.all(Target.SNOWFLAKE)):
            states.remove(Target.SNOWFLAKE, each.table)
        logger.info("snowflake.removed", extra={"kept": kept})
        return {}
    old = read(request.old_resource_properties, request.stack_id) if _in_place(request) else None
    key = first(os.environ["KEY_SECRET"], boto3.client("secretsmanager"))

    def trust() -> None:
        establish(session, wanted.config, wanted.lake, boto3.client("iam"))
        verify(session, wanted.config, wait_s=min(VERIFY_S, time_left_s))

    make(session, wanted, old, key, trust)
    _expect(request.resource_properties["Tables"], states)
    logger.info("snowflake.made")
    return {"IamUserArn": of_volume(session, wanted.config).user_arn}


def _expect(tables: Iterable[str], states: PublishStates) -> None:
    """Mark tables that have no commit event yet as pending."""
    for each in tables:
        if states.find(Target.SNOWFLAKE, each) is None:
            now_ms = int(time.time() * 1000)
            states.put(PublishState(Target.SNOWFLAKE, each, State.PENDING, now_ms))


def _in_place(request: CloudFormationCustomResourceEvent) -> bool:
    return request.request_type == "Update" and _id(request.old_resource_properties) == _id(
        request.resource_properties
    )


def read(properties: Mapping[str, Any], stack_id: str) -> Wanted:
    """The objects that a request's properties describe. Raises as `read_secret` if the catalog is Open Catalog."""
    config = Snowflake.from_json(properties["Settings"])
    region, account = stack_id.split(":")[3:5]
    secret = {}
    if config.open_catalog:
        reference = config.open_catalog.secret
        held = read_secret(reference)
        secret = {key: value_of(held, key, reference) for key in ("client_id", "client_secret")}
    lake = Lake(
        location=properties["Location"],
        region=region,
        account=account,
        database=properties["Database"],
        volume_role=properties["VolumeRole"],
        catalog_role=properties["CatalogRole"],
        external_id=properties["ExternalId"],
        **secret,
    )
    return Wanted(properties["Deployment"], config, lake)
