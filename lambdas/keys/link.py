"""The signing keys of the links: Secrets Manager's rotation -> `rotate`; a custom resource of the deploy -> `first`.

Two keys are valid at a time, so a link survives one rotation, but not two.
"""

from __future__ import annotations

import os
from functools import cache

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent

from calve.errors import Fatal
from lambdas import custom_resource
from lambdas import rotation as rotating
from lambdas.rotation import Rotation, Subject
from lambdas.tokens import BadKeys, Keys, new_link_id, sign, verify

logger = Logger(service="link_keys")
tracer = Tracer(service="link_keys")


class LinkKeys(Subject):
    """The functions that sign and verify read the secret themselves, so nothing is registered."""

    def create(self, version: str, current: str | None) -> str:
        keys = _keys(current)
        return (keys.rotated() if keys else Keys.first()).to_json()

    def test(self, pending: str, current: str | None) -> None:
        keys = Keys.parse(pending)
        for signing in (keys, _keys(current)):
            if signing and not verify(keys, sign(signing, new_link_id(), 1), now=0):
                raise Fatal("the new link keys would refuse links that are valid now")


@cache
def rotation() -> Rotation:
    return Rotation(os.environ["LINK_KEYS_SECRET"], LinkKeys(), boto3.client("secretsmanager"))


def _make_first(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    """Write the first key, unless there are keys; a generated text is replaced. The keys are deleted with their secret."""
    if request.request_type != "Delete" and _keys(rotation().current()) is None:
        opened = rotation()
        opened.client.put_secret_value(SecretId=opened.secret, SecretString=Keys.first().to_json())
        logger.info("keys.first")


def _keys(text: str | None) -> Keys | None:
    try:
        return Keys.parse(text) if text else None
    except BadKeys:
        return None


rotate = rotating.handler_of(rotation, logger, tracer)
first = custom_resource.handler_of(
    _make_first,
    identify=lambda _: f"{rotation().secret}/first-key",
    logger=logger,
    tracer=tracer,
    failed="keys.not_made",
)
