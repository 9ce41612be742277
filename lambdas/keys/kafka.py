"""Secrets Manager's rotation of one Kafka user's secret -> `rotate`.

A SCRAM user has one password at a time, so two users alternate: the password that clients use stays valid until the next rotation
(ADR 28).
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import boto3
from aws_lambda_powertools import Logger, Tracer

from calve.config.job import Kafka
from calve.errors import Retryable
from calve.secrets import Redacted, read_secret
from lambdas.kafka_client import Broker, Login, Refused
from lambdas.rotation import Rotation, Subject, attempt, credentials_of, handler_of

logger = Logger(service="kafka_keys")
tracer = Tracer(service="kafka_keys")

CLONE = "_clone"
"""Suffix of the second user's name, as in AWS's own alternating-users rotation."""
ATTEMPTS = 20
PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class AlternatingUsers(Subject):
    """The user that is not in use gets a new password and the rights of the other, who stays for jobs that run.

    login: opens a broker as a user. admin: may change users and ACLs; opened when needed.
    """

    login: Login
    admin: Callable[[], Broker]
    sleep: Callable[[float], None] = time.sleep

    def create(self, version: str, current: str | None) -> str:
        texts = credentials_of(current)
        return json.dumps(
            {**texts, "username": other(texts["username"]), "password": secrets.token_urlsafe(32)}
        )

    def set(self, pending: str, current: str | None) -> None:
        new, admin = credentials_of(pending), self.admin()
        admin.set_password(new["username"], new["password"])
        admin.copy_rights(credentials_of(current)["username"], new["username"])

    def test(self, pending: str, current: str | None) -> None:
        """The new user can log in and sees the same topics; brokers apply a change with a delay."""
        needed = self.login(credentials_of(current)).topics()

        def see() -> None:
            if missing := needed - self.login(credentials_of(pending)).topics():
                raise Retryable(f"the new user does not see {len(missing)} of the topics of the one in use")

        attempt(see, ATTEMPTS, PAUSE_S, self.sleep, passing=(Retryable, Refused))


@dataclass(frozen=True, slots=True)
class MskPassword(Subject):
    """A secret that is associated with an MSK cluster: MSK reads the version in use itself.

    Clients wait for that (`calve.secrets.SPREADING_S`).
    """

    login: Login

    def create(self, version: str, current: str | None) -> str:
        return json.dumps({**credentials_of(current), "password": secrets.token_urlsafe(32)})

    def test(self, pending: str, current: str | None) -> None:
        """MSK does not know the new password yet. The login with the current one shows that the secret belongs to the cluster."""
        self.login(credentials_of(current)).topics()


def other(user: str) -> str:
    return user.removesuffix(CLONE) if user.endswith(CLONE) else user + CLONE


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
