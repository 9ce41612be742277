"""Secrets Manager's rotation -> `rotate`."""

from __future__ import annotations

import os
from functools import cache

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import event_source
from aws_lambda_powertools.utilities.data_classes.secrets_manager_event import SecretsManagerEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.publishing import Snowflake
from lambdas.rotation import Rotation
from lambdas.snowflake_keys.keys import SnowflakeKeys

logger = Logger(service="snowflake_keys")
tracer = Tracer(service="snowflake_keys")


@cache
def rotation() -> Rotation:
    """Made once per process."""
    keys = SnowflakeKeys(Snowflake.from_json(os.environ["SNOWFLAKE"]))
    return Rotation(os.environ["KEY_SECRET"], keys, boto3.client("secretsmanager"))


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@event_source(data_class=SecretsManagerEvent)
def rotate(event: SecretsManagerEvent, context: LambdaContext) -> None:
    """Do the step that Secrets Manager asks for."""
    rotation().step(event)
    logger.info("keys.rotation", extra={"step": event.step})
