"""A table of a database, and the events that Debezium writes of its changes (https://debezium.io/documentation/reference/stable/)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from calve.config.job import Source
from calve.config.spark_conf import CATALOG
from calve.modes.upsert import ChangeData
from calve.schema.change_events import UNAVAILABLE
from tests.debezium import COLUMNS, KEY, LARGE, Fields, connect_schema, envelope, event, json_schema
from tests.integration.support.engine import DATABASE, Engine

BY_RECORD_KEY = ChangeData(("_kafka.key",), deletes=True, bucketed=True)
BY_ID = ChangeData(("id",), bucketed=True)
KEPT = ChangeData(("_kafka.key",), bucketed=True, keep_deleted=True)
BY_LSN = ChangeData(
    ("_kafka.key",), order_by="_change.position", bucketed=True, source_order=("lsn",), keep_deleted=True
)


@dataclass
class Database:
    """A table of rows by their primary key `id`, whose changes go to a topic, a row's to one partition.

    encoding: `avro`, `json`, or `connect`: JSON with its schema in every message. full: the log has the row before a change
    (REPLICA IDENTITY FULL), else its key alone. held: events wait for `release`.
    """

    engine: Engine
    partitions: int = 2
    full: bool = False
    encoding: str = "avro"
    config: dict[str, str] | None = None
    columns: Fields = field(default_factory=lambda: COLUMNS)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    topic: str = ""
    lsn: int = 1_000
    log: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)
    held: bool = False

    def __post_init__(self) -> None:
        self.topic = self.engine.topic(
            partitions=self.partitions, schema=envelope(self.columns), config=self.config
        )
        self.engine.registry.register_schema(f"{self.topic}-key", Schema(KEY, "AVRO"))
        self._keys = AvroSerializer(self.engine.registry, KEY, conf={"auto.register.schemas": False})

    @property
    def value(self) -> Source:
        """How a table reads its values."""
        if self.encoding == "avro":
            return Source()
        schema = (json_schema if self.encoding == "json" else connect_schema)(self.columns)
        return Source(format="json", prefix="none", schema=schema)

    def target(self, mode: ChangeData = BY_RECORD_KEY, **settings: Any) -> Any:
        return self.engine.target(self.topic, change_data=mode, **({"value": self.value} | settings))

    def insert(self, key: int, **values: Any) -> None:
        self.rows[key] = (
            dict.fromkeys(self.columns) | {"id": key, "note": f"note {key}", "tags": [f"t{key}"]} | values
        )
        self.write("c", key, None, self.rows[key])

    def update(self, key: int, **values: Any) -> None:
        before, self.rows[key] = self.rows[key], self.rows[key] | values
        after = self.rows[key] | {
            name: _placeholder(name) for name in LARGE if name not in values and self.rows[key].get(name)
        }
        self.write("u", key, before if self.full else None, after)

    def delete(self, key: int) -> None:
        """As the connector does: the event, and a tombstone."""
        before = self.rows.pop(key)
        self.write("d", key, before if self.full else dict.fromkeys(self.columns) | {"id": key}, None)
        self._put(key, None)

    def move(self, key: int, to: int) -> None:
        """A change of the primary key: three events."""
        row = self.rows[key] | {"id": to}
        self.delete(key)
        self.rows[to] = row
        self.write("c", to, None, row)

    def snapshot(self) -> None:
        """All rows are read once more, as by an incremental snapshot."""
        for key, row in self.rows.items():
            self.write("r", key, None, row)

    def truncate(self) -> None:
        self.rows = {}
        self._send_to(0, None, self._encode("t"))

    def message(self) -> None:
        """A logical message, that is about no row."""
        self._send_to(0, None, self._encode("m"))

    def add_column(self, name: str, kind: Any) -> None:
        self.columns = {**self.columns, name: kind}
        self.rows = {key: row | {name: None} for key, row in self.rows.items()}
        self.engine.register(self.topic, envelope(self.columns))

    def redeliver(self, count: int) -> None:
        """The connector has died, and begins again before the events that it wrote last."""
        for partition, key, value in self.log[-count:]:
            self.engine.send(self.topic, value, key=key or None, partition=partition)

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[None]:
        """The events of the code inside in one transaction of Kafka's; aborted, nothing of it has happened."""
        before, sent, self.held = deepcopy(self.rows), len(self.log), True
        yield
        self.held = False
        settings = {"bootstrap.servers": self.engine.stack.bootstrap_servers, "transactional.id": self.topic}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        for partition, key, value in self.log[sent:]:
            producer.produce(self.topic, value, key=key or None, partition=partition)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
            self.rows, self.log = before, self.log[:sent]

    def release(self, dice: random.Random, parts: int) -> Iterator[None]:
        """Send the events that wait, those of each partition in any order, in so many parts."""
        self.held = False
        shuffled = dice.sample(self.log, len(self.log))
        for part in range(parts):
            for partition, key, value in shuffled[part::parts]:
                self.engine.send(self.topic, value, key=key or None, partition=partition)
            self.engine.flush()
            yield

    def churn(self, dice: random.Random, changes: int, *, keys: int = 12) -> None:
        """Changes as an application makes them."""
        for _ in range(changes):
            key, deed = dice.randrange(keys), dice.random()
            if key not in self.rows:
                self.insert(key, name=f"n{dice.randrange(99)}")
            elif deed < 0.5:
                self.update(key, name=f"n{dice.randrange(99)}")
            elif deed < 0.7:
                self.update(key, name=f"n{dice.randrange(99)}", note=f"note {dice.randrange(99)}", tags=None)
            elif deed < 0.85:
                self.delete(key)
            elif (to := key + keys) not in self.rows:
                self.move(key, to)
        if not self.held:
            self.engine.flush()

    def rewrite(self, dice: random.Random) -> None:
        """A change that needs nothing of what is before it: no value is left out."""
        key = dice.randrange(12)
        if key not in self.rows:
            self.insert(key, name=f"n{dice.randrange(99)}")
        elif dice.random() < 0.3:
            self.delete(key)
        else:
            self.update(key, name=f"n{dice.randrange(99)}", note="new", tags=None)

    def expected(self) -> dict[int, dict[str, Any]]:
        return deepcopy(self.rows)

    def kept(self) -> dict[int, dict[str, Any]]:
        """The rows that the table has, but for those that it only remembers as deleted; a key that is there twice is an error."""
        table = self.engine.spark.table(f"{CATALOG}.{DATABASE}.{self.topic}")
        found = [each.asDict(recursive=True) for each in table.where("not _change.deleted").collect()]
        by_key = {each["id"]: {name: each[name] for name in self.columns} for each in found}
        assert len(by_key) == len(found)
        return by_key

    def write(self, op: str, key: int, before: Any, after: Any) -> None:
        self._put(key, self._encode(op, before, after))

    def _encode(self, op: str, before: Any = None, after: Any = None) -> bytes:
        self.lsn += 8
        now = int(time.time() * 1000)
        told = event(op, before=before, after=after, lsn=self.lsn, ts_ms=now, ts_us=now * 1000 + 7)
        if self.encoding == "avro":
            return self.engine.encode(self.topic, told)
        if self.encoding == "connect":
            told = {"schema": json.loads(connect_schema(self.columns)), "payload": told}
        return json.dumps(told).encode()

    def _put(self, key: int, value: bytes | None) -> None:
        encoded = self._keys({"id": key}, SerializationContext(self.topic, MessageField.KEY))
        self._send_to(key % self.partitions, bytes(encoded or b""), value)

    def _send_to(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        self.log.append((partition, key or b"", value))
        if not self.held:
            self.engine.send(self.topic, value, key=key, partition=partition)


def _placeholder(name: str) -> Any:
    return [UNAVAILABLE] if name == "tags" else UNAVAILABLE
