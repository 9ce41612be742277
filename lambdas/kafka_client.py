"""The AdminClient of a Kafka cluster, with time limits and clear errors; and the SCRAM users and ACLs that a rotation needs."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, admin

from calve.config.job import Kafka
from calve.config.kafka_auth import librdkafka_properties
from calve.errors import Fatal, Retryable
from calve.secrets import Redacted

TIMEOUT_S = 10
REFUSED = {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}
DENIED = {KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}


class Refused(Fatal):
    """The cluster refuses the login, or its certificate is not trusted."""


class Denied(Fatal):
    """The user is logged in, but not allowed to do this."""


class KafkaClient:
    """One cluster with the rights of one user. `properties`: of librdkafka. `patience_s`: the longest wait for an answer."""

    def __init__(self, where: str, properties: dict[str, Any], patience_s: float = TIMEOUT_S) -> None:
        self._where = where
        self._patience_s = patience_s
        self._refusal: KafkaError | None = None
        self._trouble: KafkaError | None = None
        self._properties = properties | {"log_level": 0, "error_cb": self._noted}
        self._admin = admin.AdminClient(self._properties)

    @property
    def id(self) -> str:
        """The cluster's id. Raises Retryable: it does not answer. Refused, Denied: see there."""
        with self._errors():
            cluster = self._result(self._admin.describe_cluster(request_timeout=self._patience_s))
            return str(cluster.cluster_id)

    def _result(self, future: Future[Any]) -> Any:
        """A client's answer. librdkafka reports refusals only to `error_cb`, which `poll` calls, and retries."""
        until = time.monotonic() + self._patience_s + 1
        while not future.done() and self._refusal is None and time.monotonic() < until:
            self._admin.poll(0.05)
        if self._refusal:
            raise KafkaException(self._refusal)
        return future.result(timeout=1)

    def _noted(self, error: KafkaError) -> None:
        if error.code() in REFUSED | DENIED:
            self._refusal = error
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            cause: KafkaError = error.args[0]
        except TimeoutError:
            cause = KafkaError(KafkaError._TIMED_OUT)
        else:
            return
        if cause.code() in REFUSED:
            raise Refused(f"Kafka at {self._where} refused: {cause.str()}", fix="check kafka.auth") from None
        if cause.code() in DENIED:
            fix = "grant the user of kafka.auth what it lacks in Kafka's ACLs"
            raise Denied(f"Kafka at {self._where} refused: {cause.str()}", fix=fix) from None
        fix = "check kafka.bootstrap_servers; the embedded broker starts with `calve up`"
        why = (self._trouble or cause).str()
        raise Retryable(f"Kafka at {self._where} does not answer: {why}", fix=fix) from None


def properties_of(kafka: Kafka, secret: Redacted | None, region: str) -> dict[str, Any]:
    """Properties of every librdkafka client; `region`: of an MSK cluster. Raises ConfigError: as `librdkafka_properties`."""
    properties: dict[str, Any] = {**librdkafka_properties(kafka, secret)}
    if kafka.auth == "msk_iam":
        properties["oauth_cb"] = _msk_token(region)
    return properties


def _msk_token(region: str) -> Callable[[str], tuple[str, float]]:
    """Tokens for MSK: a presigned `kafka-cluster:Connect`, in base64url.

    Source: https://github.com/aws/aws-msk-iam-sasl-signer-python
    """
    import boto3
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    lifetime_s = 900

    def token(_: str) -> tuple[str, float]:
        credentials = boto3.Session().get_credentials()
        if credentials is None:
            fix = "log in: aws sso login, or set AWS_PROFILE"
            raise Fatal("there are no AWS credentials for MSK", fix=fix)
        url = f"https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect"
        request = AWSRequest(method="GET", url=url)
        frozen = credentials.get_frozen_credentials()
        SigV4QueryAuth(frozen, "kafka-cluster", region, expires=lifetime_s).add_auth(request)
        signed = f"{request.url}&User-Agent=calve".encode()
        return base64.urlsafe_b64encode(signed).rstrip(b"=").decode(), time.time() + lifetime_s

    return token


ITERATIONS = 8192
B = TypeVar("B", admin.AclBinding, admin.AclBindingFilter)

Right = tuple[
    admin.ResourceType, str, admin.ResourcePatternType, str, admin.AclOperation, admin.AclPermissionType
]
"""An ACL without its principal: kind and name of the resource, how the name is meant, host, operation, allowed or denied."""

RIGHT = attrgetter("restype", "name", "resource_pattern_type", "host", "operation", "permission_type")


class Broker(KafkaClient):
    """The cluster with the rights of one user. `authorities`: PEM of the CAs of the brokers' certificates."""

    def __init__(self, kafka: Kafka, user: Redacted, authorities: str | None = None) -> None:
        given = {"ssl.ca.pem": authorities} if authorities else {}
        super().__init__(kafka.bootstrap_servers, {**librdkafka_properties(kafka, user), **given})
        self._mechanism = kafka.mechanism or "SCRAM-SHA-512"

    def topics(self) -> set[str]:
        """The topics that the user can see. Raises Refused: the login failed. Retryable: Kafka does not answer."""
        with self._errors():
            self._result(self._admin.describe_cluster(request_timeout=TIMEOUT_S))
            return set(self._admin.list_topics(timeout=TIMEOUT_S).topics)

    def set_password(self, user: str, password: str) -> None:
        """Create a user, or change its password. Raises Denied: not allowed. Retryable: no answer."""
        info = admin.ScramCredentialInfo(admin.ScramMechanism[self._mechanism.replace("-", "_")], ITERATIONS)
        change = admin.UserScramCredentialUpsertion(user, info, password.encode())
        with self._errors():
            answers = self._admin.alter_user_scram_credentials([change], request_timeout=TIMEOUT_S)
            for answer in answers.values():
                self._result(answer)

    def copy_rights(self, user: str, to: str) -> None:
        """Give one user the ACLs of another; nothing if the cluster has no ACLs.

        Raises:
            Denied, Retryable: as `set_password`.
        """
        with self._errors():
            try:
                wanted, present = self._rights(user), self._rights(to)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.SECURITY_DISABLED:
                    return
                raise
            if missing := [_of(admin.AclBinding, to, each) for each in wanted - present]:
                for answer in self._admin.create_acls(missing, request_timeout=TIMEOUT_S).values():
                    self._result(answer)
            if extra := [_of(admin.AclBindingFilter, to, each) for each in present - wanted]:
                for answer in self._admin.delete_acls(extra, request_timeout=TIMEOUT_S).values():
                    self._result(answer)

    def _rights(self, user: str) -> set[Right]:
        every = admin.AclBindingFilter(
            admin.ResourceType.ANY,
            None,  # type: ignore[arg-type]  # of any name
            admin.ResourcePatternType.ANY,
            f"User:{user}",
            None,  # type: ignore[arg-type]
            admin.AclOperation.ANY,
            admin.AclPermissionType.ANY,
        )
        found = self._result(self._admin.describe_acls(every, request_timeout=TIMEOUT_S))
        return set(map(RIGHT, found))


Login = Callable[[Redacted], Broker]


def _of(binding: type[B], user: str, right: Right) -> B:
    kind, name, pattern, host, operation, permission = right
    return binding(kind, name, pattern, f"User:{user}", host, operation, permission)
