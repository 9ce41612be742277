"""The topic as a plain consumer sees it: committed records only, read from given offsets to given offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from calve.columns import KEPT_OF_LARGE, LARGEST_RECORD, MOST_MILLIS
from calve.errors import CalveError, Retryable
from calve.position import Offsets

TIMEOUT_S = 15
STALLED_S = 60
BATCH_RECORDS = 1_000
CHUNK_BYTES = 32_000_000
CHUNK_RECORDS = 50_000


@dataclass(slots=True)
class Records:
    """Records column by column, in the order in which they were read.

    refused: of all records of the read, those that the job's source refuses (`calve.columns.UNDELIVERED`), by their place, with
    the reason. Of one that is too large there is what its dead letter keeps.
    """

    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamp_types: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]] | None] = field(default_factory=list)
    size_bytes: int = 0
    refused: dict[tuple[int, int], str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, message: Message) -> None:
        kind, timestamp_ms = message.timestamp()
        key: Any = message.key()
        value: Any = message.value()
        headers: Any = message.headers() or None
        place: Any = message.partition(), message.offset()
        header_bytes = sum(_size_in_batch(part) for header in headers or () for part in header)
        if len(key or b"") + len(value or b"") + header_bytes > LARGEST_RECORD:
            self.refused[place] = "record_too_large"
            value, key = None, None if len(key or b"") > KEPT_OF_LARGE else key
            headers = None if header_bytes > KEPT_OF_LARGE else headers
        elif abs(timestamp_ms) > MOST_MILLIS:
            self.refused[place] = "bad_timestamp"
        self.partitions.append(place[0])
        self.offsets.append(place[1])
        self.timestamp_types.append(kind - 1)  # librdkafka counts from 1, Kafka from 0
        self.timestamps_ms.append(timestamp_ms)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)
        self.size_bytes += len(key or b"") + len(value or b"")

    def select(self, indices: Sequence[int]) -> Records:
        """The records at these places."""
        return Records(
            partitions=[self.partitions[i] for i in indices],
            offsets=[self.offsets[i] for i in indices],
            timestamp_types=[self.timestamp_types[i] for i in indices],
            timestamps_ms=[self.timestamps_ms[i] for i in indices],
            keys=[self.keys[i] for i in indices],
            values=[self.values[i] for i in indices],
            headers=[self.headers[i] for i in indices],
            refused=self.refused,
        )

    def delivered(self) -> Sequence[int]:
        """The records that the source does not refuse."""
        places = zip(self.partitions, self.offsets, strict=True)
        return [n for n, place in enumerate(places) if place not in self.refused]


def _size_in_batch(part: str | bytes | None) -> int:
    """Bytes that a name or a value of a header has in a record batch: its length, zigzag, and itself."""
    size = len(part.encode() if isinstance(part, str) else part or b"")
    return size + max(1, -(-(size << 1).bit_length() // 7))


def is_compacted(topic: str, kafka: Mapping[str, Any]) -> bool:
    """True where the broker may remove records that newer ones with the same key replace.

    Raises:
        Retryable: the cluster does not answer.
    """
    admin = AdminClient(dict(kafka))
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        settings = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result()
    except KafkaException as error:
        raise Retryable(f"topic {topic}: its settings cannot be read: {error.args[0].str()}") from None
    return "compact" in str(settings["cleanup.policy"].value)


class Reader:
    """Reads ranges of one topic, always with the same settings."""

    def __init__(self, topic: str, kafka: Mapping[str, Any]) -> None:
        self._topic = topic
        self._settings = {
            **kafka,
            "group.id": "calve-verify",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 32_768,
            "fetch.message.max.bytes": 4_194_304,
            "receive.message.max.bytes": 2**31 - 1,  # what a batch may inflate to, too
        }

    def read(self, spans: Mapping[int, tuple[int, int]]) -> Iterator[Records]:
        """Chunks of bounded size, the partitions mixed; each partition in the order of its offsets.

        Raises:
            CalveError: retention has removed offsets meanwhile.
            Retryable: the cluster stopped answering.
        """
        spans = {partition: span for partition, span in spans.items() if span[0] < span[1]}
        if not spans:
            return
        consumer = Consumer(self._settings)
        try:
            consumer.assign([TopicPartition(self._topic, p, first) for p, (first, _) in spans.items()])
            yield from self._chunks(consumer, {p: to for p, (_, to) in spans.items()})
        finally:
            consumer.close()

    def _chunks(self, consumer: Consumer, ends: Offsets) -> Iterator[Records]:
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
                self._take(message, chunk, ends, consumer)
            if chunk.size_bytes >= CHUNK_BYTES or len(chunk) >= CHUNK_RECORDS:
                yield chunk
                chunk = Records()
        if len(chunk):
            yield chunk

    def _take(self, message: Message, chunk: Records, ends: Offsets, consumer: Consumer) -> None:
        """Keep a record that is wanted; the first one beyond the end, or the log's end, finishes its partition."""
        partition: int = message.partition()  # type: ignore[assignment]
        if partition not in ends:
            return
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise self._failure(error, partition)
        elif message.offset() < ends[partition]:  # type: ignore[operator]
            chunk.append(message)
            if message.offset() + 1 < ends[partition]:  # type: ignore[operator]
                return
        del ends[partition]
        consumer.pause([TopicPartition(self._topic, partition)])

    def _failure(self, error: KafkaError, partition: int) -> CalveError:
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            return CalveError(
                f"topic {self._topic} partition {partition}: offsets expired while they were read",
                fix="run calve verify again",
            )
        return Retryable(f"topic {self._topic} partition {partition}: {error.str()}")
