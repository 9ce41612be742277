"""The topic as a plain consumer sees it: committed records only, read from given offsets to given offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from calve.config import job
from calve.config.steps import Step
from calve.errors import CalveError, Retryable
from calve.registry.registry import Registry, open_registry
from calve.schema.columns import MOST_MILLIS, UNDELIVERED
from calve.table.position import Offsets
from calve.table.protocol import TopicState
from cli.kafka import client_properties

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

STALLED_S = 60
BATCH_RECORDS = 1_000
CHUNK_BYTES = 32_000_000
CHUNK_RECORDS = 50_000
HEADERS = methodcaller("headers")
"""Not called directly: Python's fast calls miss confluent-kafka's failure and return a broken list."""


@dataclass(slots=True)
class Records:
    """Records by column, in reading order. refused: words of `UNDELIVERED`. Empty headers, or refused: all None."""

    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamp_types: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]] | None] = field(default_factory=list)
    refused: list[str | None] = field(default_factory=list)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, message: Message) -> None:
        """Raises SystemError if a header's name is not UTF-8: confluent-kafka cannot return it."""
        kind, timestamp_ms = message.timestamp()
        key: Any = message.key()
        value: Any = message.value()
        headers: Any = HEADERS(message) or None
        self.partitions.append(message.partition())  # type: ignore[arg-type]
        self.offsets.append(message.offset())  # type: ignore[arg-type]
        self.timestamp_types.append(kind - 1)  # librdkafka counts from 1, Kafka from 0
        self.timestamps_ms.append(timestamp_ms)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)
        self.refused.append(None if timestamp_us(timestamp_ms) is not None else "bad_timestamp")
        self.size_bytes += len(key or b"") + len(value or b"")

    def select(self, indices: Sequence[int]) -> Records:
        columns: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, each in columns.items():
            columns[name] = [each[i] for i in indices] if each and isinstance(each, list) else each
        return Records(**columns)

    def without(self, indices: Iterable[int]) -> Records:
        gone = set(indices)
        return self.select([n for n in range(len(self)) if n not in gone]) if gone else self

    def place(self, index: int) -> tuple[int, int]:
        return self.partitions[index], self.offsets[index]


def timestamp_us(timestamp_ms: int) -> int | None:
    """A record's timestamp in microseconds; None if no column can hold it."""
    return timestamp_ms * 1000 if abs(timestamp_ms) <= MOST_MILLIS else None


class Reader:
    """Reads ranges of one topic, always with the same settings.

    bounded: partitions that librdkafka cannot read in bounded memory; the job's own fetch reads them.
    """

    def __init__(self, topic: TopicState, kafka: job.Kafka, region: str) -> None:
        self._topic = topic.name
        self._topic_id = topic.key.topic_id
        self._kafka = kafka
        self.bounded: set[int] = set()
        self._settings = {
            **client_properties(kafka, region),
            "group.id": "calve-verify",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 32_768,
            "fetch.message.max.bytes": 4_194_304,
        }

    def read(self, spans: Mapping[int, tuple[int, int]]) -> Iterator[Records]:
        """Chunks of bounded size with mixed partitions; each partition in the order of its offsets.

        Raises:
            CalveError: retention deleted offsets meanwhile.
            Retryable: the cluster stopped answering.
        """
        spans = {partition: span for partition, span in spans.items() if span[0] < span[1]}
        left = {partition: span for partition, span in spans.items() if partition in self.bounded}
        wanted = {partition: span for partition, span in spans.items() if partition not in self.bounded}
        if wanted:
            consumer = Consumer(self._settings)
            try:
                consumer.assign([TopicPartition(self._topic, p, first) for p, (first, _) in wanted.items()])
                at = {p: first for p, (first, _) in wanted.items()}
                yield from self._chunks(consumer, at, {p: to for p, (_, to) in wanted.items()})
            finally:
                consumer.close()
            left |= {p: (at[p], to) for p, (_, to) in wanted.items() if p in self.bounded}
        if left:
            yield from self._fetched(left)

    def _fetched(self, spans: Mapping[int, tuple[int, int]]) -> Iterator[Records]:
        """The same by the job's fetch, which returns every record, whatever it holds."""
        from glue_jobs.kafka.client import settings_of
        from glue_jobs.kafka.connection import Connection
        from glue_jobs.kafka.fetching import Range, fetch
        from glue_jobs.kafka.records import header_lists, parts

        ranges = [Range(partition, *span) for partition, span in spans.items()]
        settings = settings_of(Connection(self._kafka))
        for each in fetch(settings, self._topic, self._topic_id, ranges, CHUNK_BYTES // 8):
            keys = parts(pa.binary(), each.buffer, each.key_at, each.key_size)
            values = parts(pa.binary(), each.buffer, each.value_at, each.value_size)
            headers = header_lists(each, np.arange(len(each))).to_pylist()
            yield Records(
                [each.partition] * len(each),
                each.offset.tolist(),
                each.timestamp_type.tolist(),
                each.timestamp.tolist(),
                keys.to_pylist(),
                values.to_pylist(),
                [one and [(pair["key"], pair["value"]) for pair in one] for one in headers],
                [(None, *UNDELIVERED)[why] for why in each.refused.tolist()],
            )

    def _chunks(self, consumer: Consumer, at: Offsets, ends: Offsets) -> Iterator[Records]:
        """at: the offset after the last one that was read."""
        chunk = Records()
        heard = time.monotonic()
        while ends:
            messages = consumer.consume(BATCH_RECORDS, timeout=0.2)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > STALLED_S:
                raise Retryable(
                    f"topic {self._topic}: no answer for {STALLED_S} s in partitions {sorted(ends)}"
                )
            for message in messages:
                self._take(message, chunk, at, ends, consumer)
            if chunk.size_bytes >= CHUNK_BYTES or len(chunk) >= CHUNK_RECORDS:
                yield chunk
                chunk = Records()
        if len(chunk):
            yield chunk

    def _take(self, message: Message, chunk: Records, at: Offsets, ends: Offsets, consumer: Consumer) -> None:
        """Keep a wanted record; the first one beyond the end, or the log's end, finishes its partition."""
        partition: int = message.partition()  # type: ignore[assignment]
        if partition not in ends:
            return
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._BAD_COMPRESSION:
                self.bounded.add(partition)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise self._failure(error, partition)
        elif (offset := int(message.offset() or 0)) < ends[partition]:
            try:
                chunk.append(message)
                at[partition] = offset + 1
                if offset + 1 < ends[partition]:
                    return
            except SystemError:
                self.bounded.add(partition)
        del ends[partition]
        consumer.pause([TopicPartition(self._topic, partition)])

    def _failure(self, error: KafkaError, partition: int) -> CalveError:
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            return CalveError(
                f"topic {self._topic} partition {partition}: offsets expired while they were read",
                fix="run calve verify again",
            )
        return Retryable(f"topic {self._topic} partition {partition}: {error.str()}")


@dataclass(frozen=True, slots=True)
class Sources:
    """The catalog, the topic's cluster and the registry, and the format of values and keys.

    masking: the secret with the keys that encrypt dead letters.
    """

    catalog: Catalog
    kafka: job.Kafka
    registry: job.AnyRegistry | None
    region: str
    value: job.Source = field(default_factory=job.Source)
    key: job.Source | None = None
    steps: tuple[Step, ...] = ()
    masking: str | None = None

    @classmethod
    def of(cls, catalog: Catalog, settings: job.Job, table: job.Table) -> Self:
        parts = table.value, table.key, table.steps
        return cls(catalog, settings.kafka, settings.registry, settings.lake.region, *parts, settings.masking)

    def open_registry(self) -> Registry | None:
        """The registry; None if no schema is registered."""
        registered = any(each is not None and each.registered for each in (self.value, self.key))
        return open_registry(self.registry) if registered else None
