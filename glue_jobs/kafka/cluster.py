"""The state of the cluster and its topics, requested over the connections of `Client`."""

from __future__ import annotations

import base64
import math
import socket
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from kafka.cluster import collect_hosts
from kafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    NoError,
    TopicAlreadyExistsError,
    UnknownBrokerIdError,
    for_code,
)
from kafka.future import Future
from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest, DescribeProducersRequest
from kafka.protocol.consumer import IsolationLevel, ListOffsetsRequest, OffsetSpec

from calve.config.job import Kafka, Start
from calve.config.publishing import Emit
from calve.errors import Fatal, Retryable, Suspended
from calve.table.position import Offsets, TopicEnd, TopicKey
from calve.table.protocol import TopicState
from glue_jobs.kafka.client import NO_ID, Client, answered, client_of, drop_client, settings_of
from glue_jobs.kafka.connection import TIMEOUT_MS, Connection, told

TOPIC_CONFIG = 2
KNOWS_COMMITTED = 2
"""The first version of the ListOffsets request with transactions."""
KNOWS_DEFAULTS = 4
"""The first version of the CreateTopics request in which the cluster chooses the number of replicas."""


LEADERS_S = 30.0
"""How long the partitions of a topic and their leaders are taken for known by `Cluster.ends`."""


class Cluster:
    """One cluster, with the current credentials. Thread-safe. `close` it at the end of the job.

    Raises ConfigError, Retryable: as `settings_of` and `Client`. Fatal: no server name can be resolved.
    """

    def __init__(self, kafka: Kafka) -> None:
        self.connection = Connection(kafka)
        self.servers = kafka.bootstrap_servers
        self._ensured: set[str] = set()
        self._led: dict[str, _Led] = {}
        self._settings = settings_of(self.connection)
        if not any(map(_resolves, collect_hosts(self.servers))):
            raise Fatal(
                f"Kafka at {self.servers}: no name of a server can be resolved",
                fix="check kafka.bootstrap_servers in calve.yaml",
            )
        client_of(self._settings)

    @property
    def id(self) -> str:
        """The cluster id, requested each time: a re-created cluster may have the same address."""
        return str(self._ask(_cluster_id))

    def names(self) -> list[str]:
        """The topics that these credentials may see, in one request, without Kafka's internal ones.

        Raises Retryable, Fatal: as `state`.
        """
        return list(self._ask(_names))

    def state(self, topic: str) -> TopicState:
        """The current state of a topic; `end` is the last stable offset.

        Raises Retryable: the topic does not exist yet, or the cluster does not respond. Suspended: `topic_forbidden`. Fatal:
        the cluster refused the credentials.
        """
        found: TopicState = self._of_topic(topic, _state)
        return found

    def ends(self, topics: Sequence[str]) -> dict[str, TopicEnd]:
        """The ends of topics: the offset after the newest record, also that of an open transaction.

        One request asks each leader. Twice a minute, one more asks who leads: that answer takes the client much longer to read.
        A topic in trouble is left out: `state` says why.
        Raises Retryable, Fatal: as `state`.
        """
        return dict(self._ask(partial(_ends, known=self._led), topics))

    def first_offsets(self, state: TopicState, start: Start) -> Offsets:
        """The start offsets of a topic that was never read.

        Raises Suspended: `start_invalid`: explicit offsets name a missing partition, or offsets that it does not hold.
        """
        match start.at:
            case "earliest":
                return dict(state.log_start)
            case "latest":
                return dict(state.end)
            case "timestamp":
                wanted, committed = start.timestamp_ms or 0, IsolationLevel.READ_COMMITTED
                found = self._of_topic(state.name, lambda each: each.offsets(each.listed(wanted, committed)))
                at = {p: found.get(p, -1) for p in state.end}
                return {p: min(o, state.end[p]) if o >= 0 else state.end[p] for p, o in at.items()}
            case "offsets":
                held = {p: range(first, state.end[p] + 1) for p, first in state.log_start.items()}
                wrong = {p: o for p, o in start.offsets.items() if o not in held.get(p, ())}
                if wrong:
                    raise Suspended(
                        "start_invalid",
                        f"topic {state.name} does not hold the start offsets {wrong}: it begins at {state.log_start}"
                        f" and ends at {state.end}",
                        fix="correct start.offsets of this table",
                        at=("start",),
                    )
                return state.log_start | start.offsets

    def largest_record(self, topic: str) -> int:
        name = "max.message.bytes"
        return int(self._of_topic(topic, lambda each: each.value(name, each.config(name))))

    def ensure_topic(self, wanted: Emit) -> None:
        """Create the topic if it is missing. An existing topic is not changed.

        Raises Suspended: `topic_forbidden`. Retryable: the cluster does not respond.
        """
        if wanted.topic not in self._ensured:
            self._ask(_make, wanted, topic=wanted.topic)
            self._ensured.add(wanted.topic)

    def has_transactions(self, state: TopicState) -> bool:
        """True if a partition remembers a transactional producer: transaction markers use offsets without records.

        Brokers forget producers that were idle for `producer.id.expiration.ms` (a day by default).
        """
        return bool(self._of_topic(state.name, _has_transactions))

    def close(self) -> None:
        drop_client(self._settings)

    def _of_topic(self, name: str, question: Callable[[_Topic], Awaitable[Any]]) -> Any:
        async def asked(client: Client) -> Any:
            return await question(await _Topic.of(client, name))

        return self._ask(asked, topic=name)

    def _ask(self, question: Callable[..., Any], *arguments: Any, topic: str | None = None) -> Any:
        """Run a request. Transient errors are retried, with the leaders known by then."""

        def attempt() -> Any:
            self._settings = settings_of(self.connection)
            client = client_of(self._settings)
            return [client.run(question, client, *arguments)]

        def explained(error: KafkaError) -> str:
            why = told(error, topic, self.servers, self.connection.refused)
            if not error.retriable and not isinstance(error, UnknownBrokerIdError):
                raise Retryable(f"Kafka at {self.servers} does not answer: {why}") from None
            return why

        (found,) = answered(attempt, explained, self.servers, lambda: drop_client(self._settings))
        return found


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic as a broker describes it. led: its partitions, by the node of their leader. asked: the time before the request.

    Requests are sent at once, in the client's thread. Responses are awaited later.
    """

    client: Client
    name: str
    key: TopicKey
    led: dict[int, list[int]]
    asked: float

    @classmethod
    async def of(cls, client: Client, name: str) -> _Topic:
        """Raises: KafkaError: the topic's error, or a partition has no leader."""
        asked = math.floor(time.time() * 1000) / 1000
        cluster_id, found = await client.described(name)
        led = defaultdict(list)
        for each in found.partitions:
            if each.leader_id < 0:
                raise LeaderNotAvailableError(name)
            led[each.leader_id].append(each.partition_index)
        return cls(client, name, _key(cluster_id, found.topic_id), led, asked)

    def of_leaders(self, request: Callable[[list[int]], Any]) -> list[Future]:
        """The responses of all leaders. request: makes it for the partitions of one leader."""
        return [self.client.send(node, request(partitions)) for node, partitions in self.led.items()]

    def listed(self, timestamp: int, isolation: IsolationLevel) -> list[Future]:
        """Responses of all leaders with the first offsets at or after a time, or those of an `OffsetSpec`."""
        kind = ListOffsetsRequest.ListOffsetsTopic
        of = kind.ListOffsetsPartition

        def request(partitions: list[int]) -> ListOffsetsRequest:
            wanted = [of(partition_index=each, timestamp=timestamp) for each in partitions]
            return _list_offsets([kind(name=self.name, partitions=wanted)], isolation)

        return self.of_leaders(request)

    def config(self, name: str) -> Future:
        resource = DescribeConfigsRequest.DescribeConfigsResource
        wanted = resource(resource_type=TOPIC_CONFIG, resource_name=self.name, configuration_keys=[name])
        return self.client.send(next(iter(self.led)), DescribeConfigsRequest(resources=[wanted]))

    async def partitions(self, asked: Sequence[Future]) -> list[Any]:
        """The leaders' responses, by partition. Raises: KafkaError: the first error of a partition."""
        answers = [await each for each in asked]
        found = [one for answer in answers for topic in answer.topics for one in topic.partitions]
        for one in found:
            _require(one.error_code, self.name)
        return found

    async def offsets(self, asked: Sequence[Future]) -> Offsets:
        return {each.partition_index: each.offset for each in await self.partitions(asked)}

    async def value(self, name: str, config: Future) -> str:
        [found] = (await config).results
        _require(found.error_code, self.name)
        return str({each.name: each.value for each in found.configs}[name])


def _key(cluster_id: object, topic_id: UUID | None) -> TopicKey:
    # Kafka writes an id in base 64, without padding.
    text = base64.urlsafe_b64encode((topic_id or NO_ID).bytes).rstrip(b"=").decode()
    return TopicKey(str(cluster_id), text)


def _list_offsets(topics: list[Any], isolation: IsolationLevel) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=topics, min_version=KNOWS_COMMITTED
    )


@dataclass(frozen=True, slots=True)
class _Led:
    """A topic's partitions by their leaders, as of a moment (monotonic)."""

    key: TopicKey
    partitions: Mapping[int, Sequence[int]]
    at: float


async def _ends(client: Client, names: Sequence[str], known: dict[str, _Led]) -> dict[str, TopicEnd]:
    now = time.monotonic()
    if old := [name for name in names if name not in known or now - known[name].at >= LEADERS_S]:
        await _look_up_leaders(client, old, known)
    kind = ListOffsetsRequest.ListOffsetsTopic
    wanted: dict[int, list[Any]] = defaultdict(list)
    present = known.keys() & set(names)
    for name in present:
        for node, partitions in known[name].partitions.items():
            latest = [
                kind.ListOffsetsPartition(partition_index=each, timestamp=OffsetSpec.LATEST)
                for each in partitions
            ]
            wanted[node].append(kind(name=name, partitions=latest))
    answers = []
    for node, each in wanted.items():
        with suppress(Exception):  # no leader, or no connection to this broker: its topics are left out
            answers.append(client.send(node, _list_offsets(each, IsolationLevel.READ_UNCOMMITTED)))
    ends: dict[str, Offsets] = defaultdict(dict)
    for answer in answers:
        with suppress(Exception):
            for topic in (await answer).topics:
                found = (each for each in topic.partitions if not each.error_code)
                ends[topic.name] |= {each.partition_index: each.offset for each in found}
    whole: dict[str, TopicEnd] = {}
    for name in present:
        if len(ends[name]) == sum(map(len, known[name].partitions.values())):
            whole[name] = (known[name].key, ends[name])
        else:
            del known[name]  # another broker may lead it now
    return whole


async def _look_up_leaders(client: Client, names: Sequence[str], known: dict[str, _Led]) -> None:
    described = await client.metadata(names)
    for topic in described.topics:
        led = defaultdict(list)
        for each in topic.partitions:
            led[each.leader_id].append(each.partition_index)
        known.pop(topic.name, None)
        if not topic.error_code:
            key = _key(described.cluster_id, topic.topic_id)
            known[topic.name] = _Led(key, led, time.monotonic())


async def _state(topic: _Topic) -> TopicState:
    earliest = topic.listed(OffsetSpec.EARLIEST, IsolationLevel.READ_COMMITTED)
    latest = topic.listed(OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)
    policy = topic.config("cleanup.policy")
    log_start, arrived = await topic.offsets(earliest), await topic.offsets(latest)
    compacted = "compact" in await topic.value("cleanup.policy", policy)
    # Requested last: a record that arrives between two requests must not look like an open transaction.
    end = await topic.offsets(topic.listed(OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED))
    return TopicState(
        key=topic.key,
        name=topic.name,
        log_start=log_start,
        end=end,
        compacted=compacted,
        complete_until=topic.asked if all(end[p] >= offset for p, offset in arrived.items()) else None,
    )


async def _has_transactions(topic: _Topic) -> bool:
    kind = DescribeProducersRequest.TopicRequest
    asked = topic.of_leaders(
        lambda led: DescribeProducersRequest(topics=[kind(name=topic.name, partition_indexes=led)])
    )
    return any(
        producer.coordinator_epoch >= 0 or producer.current_txn_start_offset >= 0
        for each in await topic.partitions(asked)
        for producer in each.active_producers
    )


async def _cluster_id(client: Client) -> str:
    return str((await client.metadata([])).cluster_id)


async def _names(client: Client) -> list[str]:
    return [each.name for each in (await client.metadata(None)).topics if not each.is_internal]


async def _make(client: Client, wanted: Emit) -> None:
    config: dict[str, str] = {"cleanup.policy": wanted.cleanup_policy}
    if wanted.retention_ms is not None:
        config["retention.ms"] = str(wanted.retention_ms)
    kind = CreateTopicsRequest.CreatableTopic
    topic = kind(
        name=wanted.topic,
        num_partitions=wanted.partitions,
        replication_factor=-1,
        assignments=[],
        configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in config.items()],
    )
    controller = (await client.metadata([])).controller_id
    request = CreateTopicsRequest(
        topics=[topic], timeout_ms=TIMEOUT_MS // 2, validate_only=False, min_version=KNOWS_DEFAULTS
    )
    [made] = (await client.send(controller, request)).topics
    if made.error_code != TopicAlreadyExistsError.errno:
        _require(made.error_code, made.error_message or wanted.topic)


def _require(code: int, text: str) -> None:
    if code != NoError.errno:
        raise for_code(code)(text)


def _resolves(server: tuple[str, Any, Any]) -> bool:
    try:
        return bool(socket.getaddrinfo(server[0], None))
    except OSError:
        return False
