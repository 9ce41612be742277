"""Secrets Manager's rotation -> `rotate`; a custom resource of the deploy -> `first`."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.custom_resource import serve
from lambdas.link_keys.keys import LinkKeys, make_first
from lambdas.rotation import Rotation, handler_of

logger = Logger(service="link_keys")
tracer = Tracer(service="link_keys")


@cache
def rotation() -> Rotation:
    """Made once per process."""
    return Rotation(os.environ["LINK_KEYS_SECRET"], LinkKeys(), boto3.client("secretsmanager"))


rotate = handler_of(rotation, logger, tracer)


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
def first(event: dict[str, Any], context: LambdaContext) -> None:
    """Create the first key after the secret; a delete does nothing, as the keys go with the secret."""
    reason = serve(event, context, _make_first, identify=lambda _: f"{rotation().secret}/first-key")
    if reason:
        logger.error("keys.not_made", extra={"reason": reason})


def _make_first(request: CloudFormationCustomResourceEvent, *, time_left_s: float) -> None:
    if request.request_type != "Delete" and make_first(rotation()):
        logger.info("keys.first")
