"""Secrets Manager's rotation of one API key of Confluent Cloud -> `rotate`."""

from __future__ import annotations

import json
import os
from functools import cache

import boto3
from aws_lambda_powertools import Logger, Tracer

from calve.config.job import Kafka
from calve.registry.confluent import ConfluentRegistry
from calve.secrets import HeldSecret, Redacted, read_secret
from lambdas.cloud_keys.keys import Cloud, CloudKeys
from lambdas.kafka_client import Broker
from lambdas.rotation import Rotation, handler_of

logger = Logger(service="cloud_keys")
tracer = Tracer(service="cloud_keys")


@cache
def rotation() -> Rotation:
    """Made once per process. `KAFKA`: the clients' settings as JSON. `REGISTRY`: the registry's URL."""
    secret, admin = os.environ["SECRET"], os.environ["ADMIN_SECRET"]
    subject = CloudKeys(
        secret,
        lambda: Cloud(os.environ["CLOUD"], read_secret(f"aws:{admin}")),
        _open_registry if "REGISTRY" in os.environ else _open_kafka,
        int(os.environ["KEYS_TO_RETAIN"]),
    )
    return Rotation(secret, subject, boto3.client("secretsmanager"))


def _open_kafka(key: Redacted) -> None:
    kafka = Kafka(**json.loads(os.environ["KAFKA"]))
    Broker(kafka, key, os.environ.get("KAFKA_AUTHORITIES")).topics()


def _open_registry(key: Redacted) -> None:
    given = HeldSecret(os.environ["SECRET"], read=lambda _: key)
    ConfluentRegistry(os.environ["REGISTRY"], secret=given).subjects()


rotate = handler_of(rotation, logger, tracer)
