"""A topic of readings and a table filled from it by PyIceberg, as calve would fill it: for tests that then touch either."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from fastavro import parse_schema, schemaless_writer
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from calve.names import TableName
from calve.schema.columns import DEAD_LETTERS, KAFKA, struct, with_ids
from calve.schema.columns import field as column
from calve.table.position import DeadLetterRound, Ledger, Offsets, Position, TopicKey
from calve.table.summary import encode, root
from cli.kafka import Cluster
from cli.progress import LineProgress
from cli.verify.findings import Verification
from cli.verify.topic import Sources
from cli.verify.verification import verify
from tests.integration.support.records.producing import Raw, create_topic, produce, unique

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "x", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
COLUMNS = struct(column("x", "int"), column("note", "string"), column("at", "timestamptz"), KAFKA)
DATABASE = "verify_tests"
PARTITIONS = 2
Row = dict[str, Any]


@dataclass(slots=True)
class World:
    """A topic with good and bad records in turn, and a table that was filled from it as calve would fill it."""

    stack: Any
    sources: Sources
    topic: str
    schema_id: int
    rows: list[Row] = field(default_factory=list)
    letters: list[Row] = field(default_factory=list)

    @property
    def name(self) -> TableName:
        return TableName(DATABASE, self.topic)

    @property
    def catalog(self) -> Catalog:
        return self.sources.catalog

    def table(self, *, letters: bool = False) -> Table:
        name = self.name.dead_letters if letters else self.name
        return self.catalog.load_table((name.database, name.table))

    def key(self) -> TopicKey:
        return Cluster(self.sources.kafka, self.sources.region).topics({self.topic})[self.topic].key

    def value(self, x: int) -> bytes:
        out = BytesIO()
        out.write(b"\0" + self.schema_id.to_bytes(4, "big"))
        plain = parse_schema(json.loads(json.dumps(AVRO).replace("logicalType", "was")))
        schemaless_writer(out, plain, {"x": x, "note": None if x % 3 else f"n{x}", "at": x})
        return out.getvalue()

    def record(self, x: int) -> Raw:
        """Every tenth record is cut short."""
        value = self.value(x)[:-1] if x % 10 == 9 else self.value(x)
        headers = [("h", b"1"), ("h", None)] if x % 4 == 0 else []
        return Raw(value, f"k{x}".encode(), x % PARTITIONS, headers, 1_700_000_000_000 + x)

    def produce(self, numbers: Sequence[int]) -> None:
        records = [self.record(x) for x in numbers]
        for x, raw, offset in zip(
            numbers, records, produce(self.stack.bootstrap_servers, self.topic, records), strict=True
        ):
            self.take(x, raw, offset)

    def take(self, x: int, raw: Raw, offset: int) -> None:
        """Give a record the fate that the engine would give it."""
        place = {
            "topic": self.topic,
            "partition": raw.partition,
            "offset": offset,
            "timestamp": raw.timestamp_ms * 1000,
        }
        headers = [{"key": name, "value": value} for name, value in raw.headers] or None
        place |= {"timestamp_type": 0, "key": raw.key, "headers": headers, "schema_id": self.schema_id}
        if x % 10 == 9:
            facts = {
                "topic_id": self.key().topic_id,
                "value": raw.value,
                "reason": "malformed",
                "round": "r1",
            }
            self.letters.append(place | facts)
        else:
            note = None if x % 3 else f"n{x}"
            self.rows.append({"x": x, "note": note, "at": x * 1000, "_kafka": place})

    def commit(
        self, start: Offsets, to: Offsets, *, round_id: str, branch: str | None = None, **figures: int
    ) -> None:
        """Append what was produced since the last commit, dead letters first, with position and ledger."""
        topic = self.key()
        held = None
        if self.letters:
            letters = self._table(DEAD_LETTERS, self.name.dead_letters)
            append(letters, self.letters, {"calve.round": round_id}, branch=branch)
            refs = letters.metadata.refs
            held = DeadLetterRound(round_id, refs[branch or "main"].snapshot_id, len(self.letters))
        span = sum(to[p] - o for p, o in start.items())
        consumed = len(self.rows) + len(self.letters)
        given: dict[str, Any] = {
            "span": span,
            "consumed": consumed,
            "gaps": span - consumed,
            "applied": len(self.rows),
            "dead_lettered": len(self.letters),
            "rows_appended": len(self.rows),
            "rejected": {"malformed": len(self.letters)} if self.letters else {},
        }
        ledger = Ledger(**given | figures)
        position = Position({topic: to}, round_id, "w", self.topic, dead_letters=held)
        summary = encode(position=position, topic=topic, start={topic: start}, ledger=ledger, metrics={})
        table = self._table(COLUMNS, self.name)
        if table.current_snapshot() is None:
            append(table, [], root(writer="w", topic=self.topic, round_id="r0"))
        append(table, self.rows, summary)
        self.rows, self.letters = [], []

    def verify(self) -> Verification:
        return verify(self.name, self.sources, LineProgress(lambda _: None))

    def _table(self, columns: Any, name: TableName) -> Table:
        schema = Schema.model_validate(with_ids(columns) | {"schema-id": 0})
        return self.catalog.create_table_if_not_exists((name.database, name.table), schema)


def append(
    table: Table, rows: list[Row], summary: dict[str, str] | None = None, *, branch: str | None = None
) -> None:
    """One append, by whoever: only with a summary it is calve's."""
    arrow = pa.Table.from_pylist(rows, schema_to_pyarrow(table.schema(), include_field_ids=False))
    if branch and branch not in table.metadata.refs:
        if table.current_snapshot() is None:
            table.append(arrow.slice(0, 0))
        head = table.current_snapshot()
        assert head is not None
        table.manage_snapshots().create_branch(head.snapshot_id, branch).commit()
    table.append(arrow, snapshot_properties=summary or {}, **({"branch": branch} if branch else {}))


def new_world(sources: Sources, stack: Any) -> World:
    """A topic and its schema; nothing is produced yet. Its records are old, so nothing expires by itself."""
    topic = unique("readings")
    create_topic(stack.bootstrap_servers, topic, partitions=PARTITIONS, config={"retention.ms": "-1"})
    registry = SchemaRegistryClient({"url": stack.registry_url})
    schema_id = registry.register_schema(f"{topic}-value", RegisteredSchema(json.dumps(AVRO), "AVRO"))
    return World(stack, sources, topic, schema_id)


def filled(world: World) -> World:
    """Forty records, kept by two rounds."""
    world.produce(range(20))
    world.commit({0: 0, 1: 0}, {0: 10, 1: 10}, round_id="r1")
    world.produce(range(20, 40))
    world.commit({0: 10, 1: 10}, {0: 20, 1: 20}, round_id="r2")
    return world
