"""The custom resource that deletes a lake, only if the whole stack is destroyed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.custom_resource import serve
from lambdas.lake_removal.removal import Clients, Lake, is_destroyed, remove

logger = Logger()
tracer = Tracer()


@tracer.capture_lambda_handler(capture_response=False)
def handle(event: Mapping[str, Any], context: LambdaContext) -> None:
    """Delete the lake, if its stack is being destroyed."""
    if reason := serve(event, context, _act, identify=lambda properties: Lake.read(properties).id):
        logger.error("lake.not_removed", extra={"reason": reason})


def _act(request: CloudFormationCustomResourceEvent, *, time_left_s: float) -> None:
    lake = Lake.read(request.resource_properties)
    if request.request_type != "Delete":
        return
    cloudformation = boto3.client("cloudformation")
    if not is_destroyed(request.stack_id, cloudformation):
        logger.info("lake.kept", extra={"lake": lake.id})
        return
    clients = Clients(boto3.client("s3"), boto3.client("kms"), boto3.client("glue"), cloudformation)
    remove(lake, clients, time_left_s=time_left_s)
    logger.info("lake.removed", extra={"lake": lake.id})
