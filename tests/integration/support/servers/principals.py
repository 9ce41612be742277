"""Users of the embedded broker and what they may do."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from calve.config.job import Kafka
from cli.embedded.stack import Stack

READING = ("DESCRIBE", "DESCRIBE_CONFIGS", "READ")
WRITING = ("CREATE", "DESCRIBE", "WRITE")


@dataclass(frozen=True)
class User:
    """A SCRAM user, made with a password of its own."""

    admin: AdminClient
    name: str
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)

    def make(self) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(self.name, info, self.password.encode())
        for answer in self.admin.alter_user_scram_credentials([change]).values():
            answer.result(20)

    def delete(self) -> None:
        change = UserScramCredentialDeletion(self.name, ScramMechanism.SCRAM_SHA_512)
        for answer in self.admin.alter_user_scram_credentials([change]).values():
            answer.result(20)

    def allow(self, topic: str, operations: Iterable[str]) -> None:
        rules = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                f"User:{self.name}",
                "*",
                AclOperation[each],
                AclPermissionType.ALLOW,
            )
            for each in operations
        ]
        for answer in self.admin.create_acls(rules).values():
            answer.result(20)

    def rights(self) -> set[tuple[str, str]]:
        """Topics and what may be done with them."""
        every = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # of any name
            ResourcePatternType.ANY,
            f"User:{self.name}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return {(each.name, each.operation.name) for each in self.admin.describe_acls(every).result(20)}

    def write(self, file: Path) -> str:
        """Its secret in a file; returns the reference."""
        file.write_text(json.dumps({"username": self.name, "password": self.password}))
        return f"file:{file}"


def scram(stack: Stack, secret: str, emit_secret: str | None = None) -> Kafka:
    """The embedded broker for users with SCRAM, over TLS."""
    return Kafka(
        stack.sasl_bootstrap_servers,
        auth="sasl_scram",
        mechanism="SCRAM-SHA-512",
        tls=True,
        ca_file=str(stack.ca_file),
        secret=secret,
        emit_secret=emit_secret,
    )
