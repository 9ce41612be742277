"""Kafka: are the servers reachable, can the user log in, and does it have the rights that the job needs on each topic."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation

from calve.config.job import Kafka, Table
from calve.errors import CalveError, Retryable
from calve.secrets import read_secret
from lambdas.doctor.finding import Finding, of_error
from lambdas.kafka_client import DENIED, TIMEOUT_S, KafkaClient, Refused, properties_of

CONNECT_S = 4.0
SEES = frozenset({AclOperation.DESCRIBE})
READS = frozenset({AclOperation.DESCRIBE, AclOperation.READ})
WRITES = frozenset({AclOperation.DESCRIBE, AclOperation.WRITE})
OUT_OF_REACH = "let the jobs in at the brokers' port; from outside their network, look from inside: calve doctor --remote"


def kafka(settings: Kafka, region: str, tables: Sequence[Table]) -> Iterator[Finding]:
    """Whether the servers accept the user, and whether it may read every topic and write the output topics."""
    servers = [each.strip() for each in settings.bootstrap_servers.split(",")]
    unreachable = [found for each in servers if (found := _unreachable(each))]
    if len(unreachable) == len(servers):
        yield unreachable[0]
        return
    yield from (replace(each, state="warn") for each in unreachable)
    login = _login(settings, region)
    yield login
    if login.state != "ok":
        return
    # With IAM the user is the caller, not the job: the role's policy decides for the job.
    reads, writes = (SEES, SEES) if settings.auth == "msk_iam" else (READS, WRITES)
    topics = {table.topic for table in tables}
    emitted = {table.emit.topic for table in tables if table.emit}
    for check, user, names, needed in (
        ("topics", settings, topics, reads),
        ("output topics", settings.output, emitted, writes),
    ):
        try:
            if names:
                yield from judged(_client(user, region).of(names), needed, check)
        except CalveError as error:
            yield of_error(check, error)


def _login(settings: Kafka, region: str) -> Finding:
    try:
        cluster = _client(settings, region).id
    except Refused as error:
        secret = f", and what {settings.secret} holds" if settings.secret else ""
        return Finding("kafka login", "fail", error.message, f"check kafka.auth in calve.yaml{secret}")
    except Retryable as error:
        fix = f"check kafka.auth: the servers can be reached, and may not speak `{settings.auth}`"
        return Finding("kafka login", "fail", error.message, fix)
    except CalveError as error:
        return of_error("kafka login", error)
    where = f"cluster {cluster} at {settings.bootstrap_servers}"
    return Finding("kafka login", "ok", f"{where}, by {settings.auth}")


class Rights(KafkaClient):
    """The cluster with the rights of one user."""

    def of(self, names: Collection[str]) -> Mapping[str, frozenset[AclOperation] | None]:
        """The user's rights on each topic; None if the topic does not exist or is hidden from the user.

        Raises:
            Retryable, Refused: the cluster does not answer, or refuses the user.
        """
        found: dict[str, frozenset[AclOperation] | None] = {}
        with self._errors():
            self._result(self._admin.describe_cluster(request_timeout=TIMEOUT_S))
            described = self._admin.describe_topics(
                TopicCollection(sorted(names)), include_authorized_operations=True, request_timeout=TIMEOUT_S
            )
            for name, future in described.items():
                found[name] = self._operations(future)
        return found

    def _operations(self, future: Any) -> frozenset[AclOperation] | None:
        try:
            return frozenset(self._result(future).authorized_operations or ())
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            if code in DENIED:
                return frozenset()
            raise


def judged(
    rights: Mapping[str, frozenset[AclOperation] | None], needed: frozenset[AclOperation], check: str
) -> Iterator[Finding]:
    """The finding of the rights against the needed ones; `check`: `topics` or `output topics`."""
    fine = 0
    for name, allowed in sorted(rights.items()):
        one = f"{check.removesuffix('s')} {name}"
        if allowed is None and check == "topics":
            yield Finding(one, "warn", "there is no such topic", "its table begins once somebody makes it")
        elif allowed is None:
            yield Finding(one, "absent", "not there yet", "the job makes it, if the user may CREATE it")
        elif missing := sorted(each.name for each in needed - allowed):
            given = " ".join(f"--operation {each.title()}" for each in missing)
            fix = f"kafka-acls --add --allow-principal User:NAME --topic {name} {given}"
            yield Finding(one, "fail", f"the user may not {' and '.join(missing)}", fix)
        else:
            fine += 1
    if fine:
        what = " and ".join(sorted(each.name.lower() for each in needed))
        yield Finding(check, "ok", f"the user may {what} {fine} of {len(rights)}")


def _client(settings: Kafka, region: str) -> Rights:
    secret = read_secret(settings.secret) if settings.secret else None
    return Rights(settings.bootstrap_servers, properties_of(settings, secret, region))


def _unreachable(server: str) -> Finding | None:
    """The reason why no connection can be made, if any."""
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except socket.gaierror:
        fix = f"check kafka.bootstrap_servers; {OUT_OF_REACH}"
        return Finding("kafka servers", "fail", f"{host} has no address", fix)
    except TimeoutError:
        return Finding("kafka servers", "fail", f"{server} gives no answer in {CONNECT_S:g} s", OUT_OF_REACH)
    except OSError as error:
        fix = f"check kafka.bootstrap_servers, and that the broker runs; {OUT_OF_REACH}"
        return Finding("kafka servers", "fail", f"{server}: {error.strerror or type(error).__name__}", fix)
    return None
