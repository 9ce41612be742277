"""Secrets Manager's rotation -> `rotate`."""

from __future__ import annotations

import os
from functools import cache

import boto3
from aws_lambda_powertools import Logger, Tracer

from calve.config.publishing import Snowflake
from lambdas.rotation import Rotation, handler_of
from lambdas.snowflake_keys.keys import SnowflakeKeys

logger = Logger(service="snowflake_keys")
tracer = Tracer(service="snowflake_keys")


@cache
def rotation() -> Rotation:
    """Made once per process."""
    keys = SnowflakeKeys(Snowflake.from_json(os.environ["SNOWFLAKE"]))
    return Rotation(os.environ["KEY_SECRET"], keys, boto3.client("secretsmanager"))


rotate = handler_of(rotation, logger, tracer)
