"""Kafka as rotations of its keys see it: users, what they may do, and whether they get in."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from calve.config.job import Kafka
from calve.config.kafka_auth import librdkafka_properties
from calve.secrets import Redacted
from lambdas.kafka_client import TIMEOUT_S, KafkaClient

ITERATIONS = 8192

Right = tuple[ResourceType, str, ResourcePatternType, str, AclOperation, AclPermissionType]
"""An ACL without its principal: kind and name of the resource, how the name is meant, host, operation, allowed or denied."""


class Broker(KafkaClient):
    """The cluster with the rights of one user. `authorities`: PEM of those that sign the brokers' certificates."""

    def __init__(self, kafka: Kafka, user: Redacted, authorities: str | None = None) -> None:
        given = {"ssl.ca.pem": authorities} if authorities else {}
        super().__init__(kafka.bootstrap_servers, {**librdkafka_properties(kafka, user), **given})
        self._mechanism = kafka.mechanism or "SCRAM-SHA-512"

    def topics(self) -> set[str]:
        """The topics that the user may see.

        Raises:
            Refused: it does not get in. Retryable: Kafka does not answer.
        """
        with self._errors():
            self._result(self._admin.describe_cluster(request_timeout=TIMEOUT_S))
            return set(self._admin.list_topics(timeout=TIMEOUT_S).topics)

    def set_password(self, user: str, password: str) -> None:
        """Make a user, or change its password.

        Raises:
            Denied: the cluster does not let this user do it. Retryable: it does not answer.
        """
        info = ScramCredentialInfo(ScramMechanism[self._mechanism.replace("-", "_")], ITERATIONS)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        with self._errors():
            for answer in self._admin.alter_user_scram_credentials(
                [change], request_timeout=TIMEOUT_S
            ).values():
                self._result(answer)

    def copy_rights(self, user: str, to: str) -> None:
        """Allow and deny one user exactly what another one is; nothing where the cluster has no ACLs.

        Raises:
            Denied, Retryable: as `set_password`.
        """
        with self._errors():
            try:
                wanted, there = self._rights(user), self._rights(to)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.SECURITY_DISABLED:
                    return
                raise
            if missing := [_binding(to, each) for each in wanted - there]:
                for answer in self._admin.create_acls(missing, request_timeout=TIMEOUT_S).values():
                    self._result(answer)
            if extra := [_filter(to, each) for each in there - wanted]:
                for answer in self._admin.delete_acls(extra, request_timeout=TIMEOUT_S).values():
                    self._result(answer)

    def _rights(self, user: str) -> set[Right]:
        every = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # of any name
            ResourcePatternType.ANY,
            f"User:{user}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found = self._result(self._admin.describe_acls(every, request_timeout=TIMEOUT_S))
        return {
            (
                each.restype,
                each.name,
                each.resource_pattern_type,
                each.host,
                each.operation,
                each.permission_type,
            )
            for each in found
        }


Login = Callable[[Redacted], Broker]


def _binding(user: str, right: Right) -> AclBinding:
    kind, name, pattern, host, operation, permission = right
    return AclBinding(kind, name, pattern, f"User:{user}", host, operation, permission)


def _filter(user: str, right: Right) -> AclBindingFilter:
    kind, name, pattern, host, operation, permission = right
    return AclBindingFilter(kind, name, pattern, f"User:{user}", host, operation, permission)
