"""A process's connections to a cluster, with kafka-python. A worker keeps them between tasks.

Its sockets receive all available data, where kafka-python reads 4 KiB at a time. That saves a third of the fetch cost, except
over TLS. They also report the end of a connection only after its last data was read.
Otherwise that data would be lost, for example the reason why a broker refuses a password.
"""

from __future__ import annotations

import logging
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar
from uuid import UUID

from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, NodeNotReadyError, for_code
from kafka.future import Future
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest

from calve.config.kafka_auth import kafka_python_properties
from calve.errors import ConfigError, Retryable
from glue_jobs.kafka.connection import TIMEOUT_MS, Access, Connection

RECEIVE_BYTES = 1 << 18
URL = "direct://"
"""kafka-python's `proxy_url` for these sockets, without any proxy."""


class _Ending:
    """unread: whether data came that may not have been handed over yet."""

    unread = False

    def ended_after(self, data: bytes) -> bytes:
        if not data and self.unread:
            self.unread = False
            raise BlockingIOError
        self.unread = bool(data)
        return data


class _Socket(socket.socket, _Ending):
    def recv(self, size: int, flags: int = 0) -> bytes:
        return self.ended_after(super().recv(max(size, RECEIVE_BYTES), flags))


class TlsSocket(ssl.SSLSocket, _Ending):
    """For `ssl.SSLContext.sslsocket_class`."""

    def recv(self, size: int = 4096, flags: int = 0) -> bytes:
        return self.ended_after(super().recv(size, flags))


class _Sockets(KafkaNetSocket):  # type: ignore[misc]
    SCHEMES = ("direct",)

    def socket(
        self, family: int = socket.AF_UNSPEC, sock_type: int = socket.SOCK_STREAM, proto: int = 0
    ) -> socket.socket:
        return _Socket(family, sock_type, proto)


LARGEST_RESPONSE = 1 << 30
"""In bytes. A broker sends more than requested if a single batch is larger."""
_LIMITS = {
    "client_id": "calve",
    "proxy_url": URL,
    "receive_message_max_bytes": LARGEST_RESPONSE,
    # While it waits for a connection, kafka-python 3.0 queues all requests but later sends only this many; the rest stay
    # forever.
    "max_in_flight_requests_per_connection": 1 << 16,
    "request_timeout_ms": TIMEOUT_MS // 2,
    "socket_connection_setup_timeout_ms": 5_000,
    "reconnect_backoff_max_ms": 1_000,
    "slow_task_threshold_secs": 0,
}
PAUSE_S = 0.05
NO_ID = UUID(int=0)
_MSK = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")

logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)  # it would log bytes of records that it cannot read

Found = TypeVar("Found")
Settings = Access
"""The settings of a client. They may be sent to a worker, and their repr shows no secret."""


def settings_of(connection: Connection) -> Settings:
    """Client settings for the driver's cluster. Raises ConfigError, Retryable: as `Connection.access`."""
    return connection.access(kafka_python_properties)


@dataclass(frozen=True, slots=True)
class Leaders:
    """The leaders of a topic's partitions: node and epoch. Partitions without a leader are left out.

    topic_id: 0 for brokers without topic ids.
    """

    topic_id: UUID
    of: dict[int, tuple[int, int]]

    def are_of(self, topic_id: UUID) -> bool:
        return self.topic_id in (topic_id, NO_ID)


class Client:
    """Connections to the brokers of one cluster, with their own thread. Thread-safe.

    Raises ConfigError: the certificates or the key are unusable.
    """

    def __init__(self, settings: Settings) -> None:
        config: dict[str, Any] = {**settings.properties, **_LIMITS}
        pem = {name: config.pop(name, None) for name in ("authorities", "certificate", "key")}
        if config["security_protocol"].endswith("SSL"):
            config["ssl_context"] = _ssl_context(**pem)
        if config.get("sasl_mechanism") == "AWS_MSK_IAM" and (
            region := _MSK.search(config["bootstrap_servers"])
        ):
            os.environ.setdefault("AWS_DEFAULT_REGION", region[1])  # what the token is signed for
        self._net = NetworkSelector(**config)
        self._manager = KafkaConnectionManager(self._net, **config)
        self._leaders: dict[str, Leaders] = {}
        self._net.start()

    def ask(self, node: int, request: Any) -> Future:
        """Send a request. Its response is received even if nobody waits for it. Raises KafkaError: the client was dropped."""
        return self._soon(self.send, node, request)

    def answer(self, future: Future) -> Any:
        """Wait for a response. Raises KafkaError: there is none, and why."""
        over = threading.Event()
        future.add_both(lambda _: over.set())
        if not over.wait(TIMEOUT_MS / 1000):
            raise KafkaTimeoutError(f"nothing came within {TIMEOUT_MS} ms")
        if future.exception is not None:
            raise _kafka_error(future.exception)
        return future.value

    def run(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """Run a coroutine function in the client's thread; returns its result. Raises KafkaError: as `answer`."""
        return self.answer(self._soon(question, *arguments))

    def leaders(self, topic: str, topic_id: UUID) -> Leaders:
        """The leaders of a topic's partitions, cached. They may belong to another topic with the same name.

        Raises KafkaError: the topic's error, or no response.
        """
        known = self._leaders.get(topic)
        if known is None or not known.are_of(topic_id):
            known = self._leaders[topic] = self.run(self._found, topic)
        return known

    def forget_leaders(self, topic: str) -> None:
        self._leaders.pop(topic, None)

    def close(self) -> None:
        self._net.stop(TIMEOUT_MS)
        self._manager.close()
        self._net.close()

    def _soon(self, action: Any, *arguments: Any) -> Future:
        try:
            return self._manager.call_soon(action, *arguments)
        except RuntimeError:
            raise KafkaConnectionError("closed") from None

    def send(self, node: int | str, request: Any) -> Future:
        """Send a request. Call this only in the client's thread, where the response can be awaited."""
        self._manager._auth_failures.pop(node, None)  # else a key refused once is never tried again
        connection = self._manager.get_connection(node, refresh_metadata_on_err=False)
        return connection.send_request(request)

    async def metadata(self, topics: Sequence[str] | None) -> Any:
        """Metadata of topics (None: all), the cluster and the brokers, from the first broker that responds.

        Raises KafkaError: no broker responds.
        """
        cluster = self._manager.cluster
        known = [each.node_id for each in cluster.brokers()]
        random.shuffle(known)
        error: KafkaError = NodeNotReadyError("no broker")
        for node in (*known, *(each.node_id for each in cluster.bootstrap_brokers())):
            kind = MetadataRequest.MetadataRequestTopic
            request = MetadataRequest(
                topics=None if topics is None else [kind(name=each) for each in topics],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            try:
                answer = await self.send(node, request)
            except NodeNotReadyError:
                continue
            except Exception as failure:  # noqa: BLE001 any error may end a connection; the next broker may respond
                error = _kafka_error(failure)
                continue
            cluster.update_metadata(answer)
            return answer
        raise error

    async def described(self, topic: str) -> tuple[str, Any]:
        """The cluster id, and a broker's description of a topic.

        Raises KafkaError: the topic's error, or no broker responds.
        """
        answer = await self.metadata([topic])
        (found,) = answer.topics
        if found.error_code:
            raise for_code(found.error_code)(topic)
        return str(answer.cluster_id), found

    async def _found(self, topic: str) -> Leaders:
        _, found = await self.described(topic)
        leaders = {p.partition_index: (p.leader_id, p.leader_epoch) for p in found.partitions}
        led = {p: each for p, each in leaders.items() if each[0] >= 0}
        return Leaders(found.topic_id or NO_ID, led)


_clients: dict[str, Client] = {}
_lock = threading.Lock()


def client_of(settings: Settings) -> Client:
    with _lock:
        if settings.key not in _clients:
            _clients[settings.key] = Client(settings)
        return _clients[settings.key]


def drop_client(settings: Settings) -> None:
    """Drop the client: the next fetch opens new connections."""
    with _lock:
        client = _clients.pop(settings.key, None)
    if client:
        with suppress(KafkaError, RuntimeError, OSError):  # it is dropped because something in it is broken
            client.close()


def answered(
    attempt: Callable[[], list[Found]],
    explained: Callable[[KafkaError], str],
    servers: str,
    drop: Callable[[], None],
) -> list[Found]:
    """The first result of attempts that is not empty. explained: the text of a transient error; it raises any other one.

    Raises Retryable: there is none within `TIMEOUT_MS`. Then `drop` is called.
    """
    until, why = time.monotonic() + TIMEOUT_MS / 1000, "nothing came"
    while True:
        try:
            if found := attempt():
                return found
            why = "it has less than it said"
        except NodeNotReadyError:  # the client backs off after an earlier error
            pass
        except KafkaError as error:
            why = explained(error)
        if time.monotonic() > until:
            drop()
            raise Retryable(f"Kafka at {servers} does not answer: {why}")
        time.sleep(PAUSE_S)


def _kafka_error(error: BaseException) -> KafkaError:
    """The error itself, or a connection error with only the class of another error, whose text may hold anything."""
    return error if isinstance(error, KafkaError) else KafkaConnectionError(type(error).__name__)


def _ssl_context(authorities: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if authorities:
            context.load_verify_locations(cadata=authorities)
        else:
            context.load_default_certs()
        if certificate and key:
            # Only this user can read the file. Python loads the certificate only from a file.
            with NamedTemporaryFile("w", encoding="ascii") as file:
                file.write(f"{certificate}\n{key}\n")
                file.flush()
                context.load_cert_chain(file.name)
    except ssl.SSLError as error:
        raise ConfigError(
            f"the certificates or the key of kafka.auth cannot be used: {error.reason}",
            fix="check kafka.auth in calve.yaml and its secret",
        ) from None
    return context
