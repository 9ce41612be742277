"""The custom resource of the lake. A delete keeps everything: only `lambdas.lake_removal` deletes data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.custom_resource import serve
from lambdas.lake_adoption.adoption import Clients, Lake, adopt

logger = Logger()
tracer = Tracer()


@tracer.capture_lambda_handler(capture_response=False)
def handle(event: Mapping[str, Any], context: LambdaContext) -> None:
    """Create or adopt the lake of the request."""
    if reason := serve(event, context, _act, identify=lambda properties: Lake.read(properties).id):
        logger.error("lake.not_adopted", extra={"reason": reason})


def _act(request: CloudFormationCustomResourceEvent, *, time_left_s: float) -> dict[str, str]:
    lake = Lake.read(request.resource_properties)
    if request.request_type == "Delete":
        logger.info("lake.kept", extra={"lake": lake.id})
        return {}
    account, region = request.stack_id.split(":")[4], request.stack_id.split(":")[3]
    clients = Clients(boto3.client("s3"), boto3.client("kms"), boto3.client("glue"), region, account)
    attributes = adopt(lake, clients)
    logger.info("lake.adopted", extra={"lake": lake.id})
    return attributes
