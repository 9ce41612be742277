"""Secrets Manager's rotation of the service user's key pair -> `rotate`.

Two keys are valid at a time, so sessions with the old one continue.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

import boto3
from aws_lambda_powertools import Logger, Tracer

from calve.config.publishing import Snowflake
from calve.errors import Fatal
from lambdas.rotation import Rotation, Subject, handler_of
from lambdas.snowflake.sql_api import KeyPair, Session, register, stored, to_store

logger = Logger(service="snowflake_keys")
tracer = Tracer(service="snowflake_keys")


@dataclass(frozen=True, slots=True)
class SnowflakeKeys(Subject):
    """With its current key the user registers the next; the old one stays until the next rotation."""

    config: Snowflake

    def create(self, version: str, current: str | None) -> str:
        return to_store(KeyPair.generate())

    def set(self, pending: str, current: str | None) -> None:
        old = _pair(current)
        register(self._session(old), self.config.service_user, _pair(pending), kept=old)

    def test(self, pending: str, current: str | None) -> None:
        user = self._session(_pair(pending)).value("SELECT CURRENT_USER()")
        if user != self.config.service_user:
            raise Fatal(f"the new key lets in {user}, not {self.config.service_user}")

    def _session(self, key: KeyPair) -> Session:
        config = self.config
        return Session(config.url, config.account, config.service_user, key, config.publisher)


def _pair(text: str | None) -> KeyPair:
    if pair := stored(text):
        return pair
    raise Fatal("the secret holds no key pair", fix="deploy again: that makes the first one")


@cache
def rotation() -> Rotation:
    keys = SnowflakeKeys(Snowflake.from_json(os.environ["SNOWFLAKE"]))
    return Rotation(os.environ["KEY_SECRET"], keys, boto3.client("secretsmanager"))


rotate = handler_of(rotation, logger, tracer)
