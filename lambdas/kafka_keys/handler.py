"""Secrets Manager's rotation of one Kafka user's secret -> `rotate`."""

from __future__ import annotations

import json
import os
from functools import cache

import boto3
from aws_lambda_powertools import Logger, Tracer

from calve.config.job import Kafka
from calve.secrets import Redacted, read_secret
from lambdas.kafka_client import Broker
from lambdas.kafka_keys.scram import AlternatingUsers, MskPassword
from lambdas.rotation import Rotation, handler_of

logger = Logger(service="kafka_keys")
tracer = Tracer(service="kafka_keys")


@cache
def rotation() -> Rotation:
    """Made once per process. `KAFKA`: the clients' settings as JSON. Without `ADMIN_SECRET` the cluster is MSK's."""
    kafka = Kafka(**json.loads(os.environ["KAFKA"]))
    authorities = os.environ.get("KAFKA_AUTHORITIES")

    def login(user: Redacted) -> Broker:
        return Broker(kafka, user, authorities)

    admin = os.environ.get("ADMIN_SECRET")
    subject = (
        AlternatingUsers(login, lambda: login(read_secret(f"aws:{admin}"))) if admin else MskPassword(login)
    )
    return Rotation(os.environ["SECRET"], subject, boto3.client("secretsmanager"))


rotate = handler_of(rotation, logger, tracer)
