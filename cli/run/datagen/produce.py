"""Produces a plan: makes the topic if it is missing, and waits until every record is acknowledged.

Fields are random, in the frames and bytes of confluent-kafka's AvroSerializer; malformed records are made of well-formed ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from fastavro import parse_schema, schemaless_writer

from calve.config import job
from calve.errors import CalveError, ConfigError, Retryable
from calve.registry.registry import open_registry
from calve.schema.wire import GUID_MAGIC, GUID_SIZE, HEADERS
from calve.secrets import read_secret
from cli.kafka import client_properties
from cli.run.datagen.plan import DUPLICATE, Block, Dataset, Fates, Kind, Naming, Plan, blocks

SCHEMAS = Path(__file__).parent / "schemas"
FRAME_BYTES = 5
HEADER_BYTES = len(GUID_MAGIC) + GUID_SIZE
SERIALIZERS: dict[Naming, Any] = {
    "prefix": prefix_schema_id_serializer,
    "header": header_schema_id_serializer,
}
UNKNOWN_ID = 2_000_000_000
"""A schema id that no registry reaches: ids are given in turn from 1."""
UNKNOWN_GUID = GUID_MAGIC + bytes(range(GUID_SIZE))
"""A header with a GUID that no schema has."""

ABSURD_LENGTH = b"\x80\xcc\xfd\x93\x0e"
"""Avro's length of a string of 1,900,000,000 bytes, of which none follow."""

USERS = [f"User_{n}" for n in range(1, 10_001)]
COLUMNS: dict[Dataset, dict[str, Sequence[object]]] = {
    "stock_trades": {
        "side": ["BUY", "SELL"],
        "quantity": range(1, 4_001),
        "symbol": ["ZBZX", "ZJZZT", "ZTEST", "ZVV", "ZVZZT", "ZWZZT", "ZXZZT"],
        "price": range(5, 1_001),
        "account": ["ABC123", "LMN456", "XYZ789"],
        "userid": USERS,
    },
    "users": {
        "registertime": range(1_487_715_775_521, 1_519_273_364_600),
        "userid": USERS,
        "regionid": [f"Region_{n}" for n in range(1, 10)],
        "gender": ["MALE", "FEMALE", "OTHER"],
    },
}
"""By dataset, the values of each field."""
ADDED: dict[Dataset, tuple[str, Sequence[object]]] = {
    "stock_trades": ("venue", ["XNAS", "XNYS", "XVIL", None]),
    "users": ("language", ["en", "lt", "de", None]),
}
"""The field of the second schema version."""
LARGE_QUANTITIES = range(4_001, 5_001)

Row = dict[str, Any]
TIMEOUT_S = 10
PRODUCER = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # Java's, so that a key meets the partition that a Java producer chooses
    "delivery.report.only.error": True,
    "delivery.timeout.ms": 120_000,
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 200_000,
}

Record = tuple[bytes, bytes | None]
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Encoder:
    """Frames and encodes rows of one registered schema, as AvroSerializer does, at a tenth of its cost.

    frame: the prefix of the values, or the header of their records.
    """

    frame: bytes
    schema: Any

    def encode(self, row: Mapping[str, Any]) -> bytes:
        value = BytesIO()
        value.write(self.frame)
        schemaless_writer(value, self.schema, row)
        return value.getvalue()


def schema_text(dataset: Dataset, version: str = "") -> str:
    """The text of an example schema; `version` is empty, `v2` or `other`."""
    return (SCHEMAS / f"{dataset}{version and '.'}{version}.avsc").read_text()


def register(
    registry: SchemaRegistryClient, topic: str, text: str, row: Row, naming: Naming = "prefix"
) -> Encoder:
    """Let AvroSerializer register the schema for `<topic>-value`, and take its frame.

    Raises ConfigError: headers name a GUID, and the registry states none.
    """
    headers: list[tuple[str, str | bytes | None]] = []
    serializer = AvroSerializer(registry, text, conf={"schema.id.serializer": SERIALIZERS[naming]})
    try:
        value = bytes(serializer(row, SerializationContext(topic, MessageField.VALUE, headers)))
    except SerializationError:
        if naming == "prefix":
            raise
        fix = "name a registry with GUIDs, as Confluent's since 8.0, or use --schema-id prefix"
        raise ConfigError(
            "the registry states no GUIDs of schemas, which headers would name", fix=fix
        ) from None
    frame: Any = headers[0][1] if headers else value[:FRAME_BYTES]
    return Encoder(frame, parse_schema(json.loads(text)))


def rows(plan: Plan, block: Block) -> Iterator[Row]:
    """The block's well-formed rows, one for each place, also for places of special records."""
    random = Random(f"{plan.seed} {plan.topic} {block.number}")  # noqa: S311 reproducible on purpose
    size, fields = block.size, COLUMNS[plan.dataset]
    columns: dict[str, list[Any]] = {name: random.choices(values, k=size) for name, values in fields.items()}
    if plan.dataset == "stock_trades":
        for place in random.sample(range(size), round(size * plan.large_quantities)):
            columns["quantity"][place] = random.choice(LARGE_QUANTITIES)
        for place in random.sample(range(size), round(size * plan.negative_prices)):
            columns["price"][place] *= -1
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


@dataclass(frozen=True, slots=True)
class Breaker:
    """Breaks values of one topic, each after its frame. `before_string`: the bytes before the schema's first string field."""

    frame: bytes
    before_string: bytes
    other: bytes

    def broken(self, kind: Kind, value: bytes) -> bytes | None:
        """`value` broken in the given way; None is a record without a value."""
        unknown = (
            UNKNOWN_GUID if self.frame.startswith(GUID_MAGIC) else b"\x00" + UNKNOWN_ID.to_bytes(4, "big")
        )
        return {
            "null_value": None,
            "tombstone": None,
            "bad_magic": b"\x7b" + value[1:],
            "truncated": value[: len(self.frame) - 2],
            "truncated_payload": value[:-1],
            "trailing_bytes": value + b"left over",
            "unknown_schema_id": unknown + value[len(self.frame) :],
            "absurd_length": self.frame + self.before_string + ABSURD_LENGTH,
            "incompatible_schema": self.other,
        }[kind]


@dataclass(frozen=True, slots=True)
class Target:
    """Where to produce; `region`: that of an MSK cluster."""

    kafka: job.Kafka
    registry: job.AnyRegistry | None
    region: str = "us-east-1"


@dataclass(frozen=True, slots=True)
class Produced:
    """The acknowledged records. `kinds` counts those that are not new well-formed ones."""

    topic: str
    records: int
    bytes: int
    seconds: float
    fates: Fates
    kinds: dict[Kind, int] = field(default_factory=dict)
    created: bool = False


def produce(plan: Plan, target: Target, progress: Progress = lambda _: None) -> Produced:
    """Produce the plan's records and wait until the cluster has acknowledged all of them.

    `progress` is called with the number of records handed to the producer so far. Records with the same key keep their
    order.
    """
    registry = registry_client(target.registry, plan.topic)
    properties = client_properties(target.kafka, target.region)
    created = create_topic(plan.topic, plan.partitions, properties)
    records = iter(Source(plan, registry))
    sender = _Sender(plan, properties)
    size = 2_000 if plan.rate is None else max(1, min(2_000, int(plan.rate / 20)))
    started = time.monotonic()
    while batch := list(islice(records, size)):
        early = sender.sent / plan.rate - (time.monotonic() - started) if plan.rate else 0.0
        time.sleep(max(0.0, early))
        sender.send(batch)
        progress(sender.sent)
    sender.finish()
    seconds = time.monotonic() - started
    return Produced(plan.topic, plan.count, sender.bytes, seconds, plan.fates(), plan.special(), created)


def registry_client(settings: job.AnyRegistry | None, topic: str) -> SchemaRegistryClient:
    """Confluent's client, for a registry that answers: its own errors are those of its HTTP library."""
    if settings is None:
        raise ConfigError("no schema registry is named", fix="add `registry: {url: https://host}`")
    if not isinstance(settings, job.Registry) or settings.oauth or settings.client_certificate:
        raise ConfigError(
            "example records are produced with a Confluent-compatible registry, with basic authentication or none",
            fix="name another: --bootstrap and --registry",
        )
    given = {"url": settings.url}
    open_registry(settings).versions(f"{topic}-value")
    if settings.secret:
        credentials = read_secret(settings.secret)
        given["basic.auth.user.info"] = f"{credentials['username']}:{credentials['password']}"
    if settings.ca_file:
        given["ssl.ca.location"] = settings.ca_file
    return SchemaRegistryClient(given)


def create_topic(topic: str, partitions: int, properties: Mapping[str, Any]) -> bool:
    """Create a topic; False where it exists already. `properties` are librdkafka's."""
    admin = AdminClient({"log_level": 0, **properties})  # what goes wrong is raised
    future = admin.create_topics([NewTopic(topic, partitions)], request_timeout=TIMEOUT_S)[topic]
    try:
        future.result()
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if cause.retriable() or cause.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            where = properties["bootstrap.servers"]
            fix = "the embedded broker starts with `calve up`"
            raise Retryable(f"Kafka at {where} does not answer: {cause.str()}", fix=fix) from None
        raise CalveError(f"topic {topic} cannot be created: {cause.str()}") from None
    return True


class Source:
    """Iterates over the plan's records, block after block."""

    def __init__(self, plan: Plan, registry: SchemaRegistryClient) -> None:
        self._plan = plan
        self._registry = registry
        row = next(rows(plan, next(iter(blocks(plan)))))
        self._encoder = self._register(plan.topic, "", row)
        self._later: Encoder | None = None
        other, before_string = b"", b"" if plan.dataset == "stock_trades" else b"\x00"
        if "incompatible_schema" in plan.malformed:
            trade: Row = {"side": True, "quantity": "many", "userid": 1}
            row = trade if plan.dataset == "stock_trades" else {"userid": 1, "gender": True}
            other = self._register(f"{plan.topic}_other", "other", row).encode(row)
        self._breaker = Breaker(self._encoder.frame, before_string, other)

    def _register(self, topic: str, version: str, row: dict[str, Any]) -> Encoder:
        try:
            text = schema_text(self._plan.dataset, version)
            return register(self._registry, topic, text, row, self._plan.schema_id)
        except SchemaRegistryError as error:
            raise CalveError(
                f"the registry refuses the schema of {topic}: HTTP {error.http_status_code}",
                fix="another schema is registered for this topic already: name another topic, with --like",
            ) from None

    def __iter__(self) -> Iterator[Record]:
        for block in blocks(self._plan):
            made = self._well_formed(block)
            for place, kind in block.special.items():
                key, value = made[place]
                if kind == DUPLICATE:
                    earlier = (each for each in range(place - 1, -1, -1) if each not in block.special)
                    made[place] = made[next(earlier)]
                else:
                    made[place] = (key, self._breaker.broken(kind, value or b""))
            yield from made

    def _well_formed(self, block: Block) -> list[Record]:
        plan, made = self._plan, list[Record]()
        later = (
            plan.count // 2 if plan.evolve else plan.count
        )  # the first record with the second schema version
        name, values = ADDED[plan.dataset]
        random = Random(f"{plan.seed} {plan.topic} {block.number} v2")  # noqa: S311 reproducible on purpose
        added = random.choices(values, k=block.size)
        for number, (row, value) in enumerate(zip(rows(plan, block), added, strict=True), block.first):
            encoder = self._encoder
            if number >= later:
                row[name] = value
                encoder = self._later = self._later or self._register(plan.topic, "v2", row)
            made.append((row["userid"].encode(), encoder.encode(row)))
        return made


class _Sender:
    """An idempotent producer that remembers the first record that was not delivered."""

    def __init__(self, plan: Plan, properties: Mapping[str, Any]) -> None:
        self._topic = plan.topic
        self._by_header = plan.schema_id == "header"
        # 0 is now for librdkafka.
        first_ms, last_ms = (at.timestamp() * 1000 for at in plan.period) if plan.period else (0.0, 0.0)
        self._first_ms, self._step_ms = first_ms, (last_ms - first_ms) / plan.count
        self._failed = 0
        self._cause: KafkaError | None = None
        self._producer = Producer({**properties, **PRODUCER, "on_delivery": self._delivered})
        self.sent = self.bytes = 0

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failed += 1
            self._cause = self._cause or error

    def send(self, batch: list[Record]) -> None:
        hand_over = self._producer.produce
        for number, (key, value) in enumerate(batch, self.sent):
            timestamp = int(self._first_ms + number * self._step_ms)
            headers: list[tuple[str, str | bytes | None]] = []
            if self._by_header and value is not None:
                headers, value = [(HEADERS["value"], value[:HEADER_BYTES])], value[HEADER_BYTES:]
            while True:
                try:
                    hand_over(self._topic, value, key, timestamp=timestamp, headers=headers)
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self.sent += len(batch)
        self.bytes += sum(len(key) + len(value or b"") for key, value in batch)
        self._producer.poll(0)
        self._check()

    def finish(self) -> None:
        self._producer.flush()
        self._check()

    def _check(self) -> None:
        if self._cause is not None:
            problem = f"{self._failed} records were not delivered to {self._topic}"
            raise CalveError(f"{problem}: {self._cause.str()}")
