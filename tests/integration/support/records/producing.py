"""Topics and records for tests, byte by byte: what datagen would never produce."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Raw:
    """A record as it goes over the wire."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = 0


def unique(name: str) -> str:
    """A topic (or table) name that no other test uses."""
    return f"{name}_{uuid.uuid4().hex[:8]}"


def big(size: int, count: int, *, partition: int = 0) -> list[Raw]:
    """Records of `size` bytes each."""
    return [Raw(bytes([n % 256]) * size, partition=partition) for n in range(count)]


def create_topic(
    servers: str, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Make a topic and wait until the broker knows it."""
    admin = _admin(servers)
    new = NewTopic(topic, partitions, config=dict(config or {}))
    admin.create_topics([new], operation_timeout=TIMEOUT_S)[topic].result()


def delete_topic(servers: str, topic: str) -> None:
    """Delete a topic; a topic made afterwards under the same name is another one."""
    admin = _admin(servers)
    admin.delete_topics([topic], operation_timeout=TIMEOUT_S)[topic].result()


def add_partitions(servers: str, topic: str, total: int) -> None:
    """Grow a topic to `total` partitions."""
    admin = _admin(servers)
    admin.create_partitions([NewPartitions(topic, total)], operation_timeout=TIMEOUT_S)[topic].result()


def delete_records(servers: str, topic: str, before: Mapping[int, int]) -> None:
    """Remove the records below an offset, by partition, as retention does."""
    admin = _admin(servers)
    places = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    for future in admin.delete_records(places).values():
        future.result()


def alter_config(servers: str, topic: str, **config: str) -> None:
    """Set configuration entries of a topic (`cleanup_policy="compact"` sets cleanup.policy)."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = _admin(servers)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def produce(servers: str, topic: str, records: Iterable[Raw]) -> list[int]:
    """Produce records in order; gives the offset of each."""
    return _send(Producer(_settings(servers)), topic, records)


def transaction(
    servers: str, topic: str, records: Iterable[Raw], *, outcome: Literal["commit", "abort", "open"]
) -> Producer:
    """Produce records in one transaction; an open one ends with the producer that is given back."""
    producer = Producer(
        _settings(servers) | {"transactional.id": uuid.uuid4().hex, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    _send(producer, topic, records)
    if outcome == "commit":
        producer.commit_transaction(TIMEOUT_S)
    elif outcome == "abort":
        producer.abort_transaction(TIMEOUT_S)
    return producer


def _send(producer: Producer, topic: str, records: Iterable[Raw]) -> list[int]:
    offsets: dict[int, int] = {}

    def delivered(place: int) -> Any:
        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            offsets[place] = message.offset() or 0

        return done

    for place, record in enumerate(records):
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=record.partition,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=delivered(place),
        )
        producer.poll(0)
    if left := producer.flush(TIMEOUT_S):
        raise AssertionError(f"{left} records were not delivered to {topic}")
    return [offsets[place] for place in sorted(offsets)]


def _admin(servers: str) -> AdminClient:
    """A client that its caller keeps in a variable: its answers are lost with it."""
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def _settings(servers: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "enable.idempotence": True,
        "message.max.bytes": 8_000_000,
        "linger.ms": 5,
        "log_level": 0,
    }
