"""Records whose headers name their schemas, as Confluent's newer serializers write them: in every format, for keys and values."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import wrappers_pb2
from pyspark.sql import functions as F

from calve.config.job import Budget, EngineChoice, Registry, Source
from calve.config.publishing import Emit
from calve.config.steps import Mask, Rule
from calve.errors import Retryable
from calve.requests.redrive import Request
from calve.schema.wire import HEADERS
from calve.table.summary import REDRIVE
from cli.verify.formats.fields import CONFLUENT
from cli.verify.topic import Records
from glue_jobs.columns.expressions import named_column
from glue_jobs.process.faults import STEPS
from tests.integration.support.engine import TRADE, Engine, at
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.servers.guid_registry import GuidRegistry

VALUE, KEY = HEADERS["value"], HEADERS["key"]
KEY_SCHEMA = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "n", "type": "long"}]})
WIDER = json.loads(TRADE)
WIDER["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
OTHER = json.dumps({"type": "record", "name": "Other", "fields": [{"name": "id", "type": "long"}]})
JSON_SCHEMA = json.dumps(
    {"type": "object", "title": "T", "properties": {"id": {"type": "integer"}, "side": {"type": "string"}}}
)
Headers = list[tuple[str, str | bytes | None]]
BY_HEADER = {"schema.id.serializer": header_schema_id_serializer}
BY_PREFIX = {"schema.id.serializer": prefix_schema_id_serializer}


@pytest.fixture(scope="module")
def stating(engine: Engine) -> Iterator[GuidRegistry]:
    with GuidRegistry(engine.stack.registry_url) as served:
        yield served


@pytest.fixture(scope="module")
def silent(engine: Engine) -> Iterator[GuidRegistry]:
    with GuidRegistry(engine.stack.registry_url, states_guids=False) as served:
        yield served


class Topic:
    """A topic of one partition, with Confluent's serializers, as a producer has them."""

    def __init__(self, engine: Engine, url: str) -> None:
        self.name = f"t{uuid.uuid4().hex[:12]}"
        engine.create(self.name, partitions=1)
        self._engine, self._client = engine, SchemaRegistryClient({"url": url})

    def avro(
        self, row: Any, headers: Headers, how: Any = BY_HEADER, schema: str = TRADE, subject: str = ""
    ) -> bytes:
        settings = {**how, "subject.name.strategy": lambda *_: subject} if subject else how
        return self._made(AvroSerializer(self._client, schema, conf=settings), row, headers)

    def key(self, row: Any, headers: Headers, how: Any = BY_HEADER) -> bytes:
        return self._made(AvroSerializer(self._client, KEY_SCHEMA, conf=how), row, headers, MessageField.KEY)

    def json(self, row: Any, headers: Headers, how: Any = BY_HEADER) -> bytes:
        return self._made(JSONSerializer(JSON_SCHEMA, self._client, conf=how), row, headers)

    def protobuf(self, message: Any, headers: Headers, how: Any = BY_HEADER) -> bytes:
        settings = {"use.deprecated.format": False, **how}
        return self._made(ProtobufSerializer(type(message), self._client, conf=settings), message, headers)

    def _made(self, serializer: Any, row: Any, headers: Headers, part: Any = MessageField.VALUE) -> bytes:
        return bytes(serializer(row, SerializationContext(self.name, part, headers)))

    def send(self, value: bytes | None, headers: Headers, key: bytes | None = None) -> None:
        self._engine.producer.produce(self.name, value, key, headers=headers, partition=0)


def trade(number: int) -> dict[str, Any]:
    return {"id": number, "side": "BUY", "price": number}


def with_header(topic: Topic, number: int) -> tuple[bytes, bytes]:
    """A value without a prefix, and the header that names its schema."""
    headers: Headers = []
    value = topic.avro(trade(number), headers)
    [(name, held)] = headers
    assert name == VALUE
    assert isinstance(held, bytes)
    return value, held


@pytest.mark.parametrize(
    ("choice", "states"),
    [
        ("columnar", True),
        ("rows", False),
        pytest.param("columnar", False, marks=pytest.mark.long),
        pytest.param("rows", True, marks=pytest.mark.long),
    ],
)
def test_a_header_names_the_schema_or_else_the_prefix(
    engine: Engine, stating: GuidRegistry, silent: GuidRegistry, choice: EngineChoice, states: bool
) -> None:
    topic, registry = Topic(engine, stating.url), Registry((stating if states else silent).url)
    for number in range(8):
        headers: Headers = [("other", b"x")] if number & 4 else []
        of_value, of_key = (BY_HEADER if number & bit else BY_PREFIX for bit in (1, 2))
        value = topic.avro(trade(number), headers, of_value)
        topic.send(value, headers, topic.key({"n": number}, headers, of_key))
    (value, guid), prefixed = with_header(topic, 9), topic.avro(trade(7), [], BY_PREFIX)
    strange: Headers = []
    of_others = topic.avro({"id": 1}, strange, BY_HEADER, OTHER, f"{topic.name}-other")
    unknown = uuid.uuid4().bytes
    bad: list[tuple[str, bytes | None, Headers]] = [
        ("unknown_schema_id", value, [(VALUE, b"\x01" + unknown)]),
        ("truncated", value, [(VALUE, b"\x01" + unknown[:15])]),
        ("truncated", value, [(VALUE, b"")]),
        ("truncated", value, [(VALUE, b"\x00\x00")]),
        ("bad_magic", value, [(VALUE, b"\x02" + unknown)]),
        ("bad_magic", guid + value, []),  # only a header holds a GUID
        ("malformed", value[:-1], [(VALUE, guid)]),
        ("trailing_bytes", value + b"x", [(VALUE, guid)]),
        ("trailing_bytes", prefixed, [(VALUE, guid)]),
        ("null_value", None, [(VALUE, guid)]),
        ("incompatible_schema", of_others, strange),
        ("key_malformed", value, [(VALUE, guid), (KEY, b"\x02")]),
        ("key_unknown_schema_id", value, [(VALUE, guid), (KEY, b"\x01" + unknown)]),
    ]
    for reason, each, headers in bad:
        topic.send(each, headers, b"k" if reason.startswith("key") else None)
    topic.send(value, [(VALUE, b"\x01" + unknown), (VALUE, guid)])  # the last one counts
    topic.send(prefixed, [(VALUE, guid), (VALUE, None)])  # null names nothing
    topic.send(prefixed[5:], [(VALUE, prefixed[:5])])  # an id, too
    engine.flush()
    key = Source(column="k")
    outcomes = engine.drain(engine.target(topic.name, registry=registry, key=key, engine=choice))
    rows = engine.rows(topic.name).orderBy("_kafka.offset").select("id", "k.n", "_kafka.schema_id").collect()
    schema_id = int.from_bytes(prefixed[1:5], "big")
    assert [tuple(each) for each in rows] == [
        *((number, number, schema_id) for number in range(8)),
        *((number, None, schema_id) for number in (9, 7, 7)),
    ]
    letters = engine.letters(topic.name).orderBy("offset").select("reason", "value", "headers").collect()
    assert [(each[0], each[1] and bytes(each[1])) for each in letters] == [
        (reason, each) for reason, each, _ in bad
    ]
    assert [[(each.key, bytes(each.value)) for each in letter[2] or []] for letter in letters] == [
        headers for _, _, headers in bad
    ]
    assert sum(each.ledger.consumed for each in outcomes) == len(rows) + len(bad)
    assert_proved(proof(engine, topic.name, registry=registry, key=key))


def test_json_and_protobuf_with_headers_are_the_rows_of_their_prefixes(
    engine: Engine, stating: GuidRegistry
) -> None:
    registry = Registry(stating.url)
    of_json, of_protobuf = (Topic(engine, stating.url) for _ in range(2))
    message = wrappers_pb2.DoubleValue(value=5.5)
    for how in (BY_PREFIX, BY_HEADER):
        headers: Headers = []
        of_json.send(of_json.json({"id": 1, "side": "x"}, headers, how), headers)
        headers = []
        of_protobuf.send(of_protobuf.protobuf(message, headers, how), headers)
    [(_, held)] = headers
    assert isinstance(held, bytes)
    assert len(held) == 1 + 16 + 1, "the index of the message follows the GUID"
    of_protobuf.send(message.SerializeToString(), [(VALUE, held[:17] + b"\x02\x40")])  # no such message
    for how in (BY_PREFIX, BY_HEADER):  # another message of the file
        headers = []
        of_protobuf.send(of_protobuf.protobuf(wrappers_pb2.Int64Value(value=5), headers, how), headers)
    engine.flush()
    for topic, columns in ((of_json, ("id", "side")), (of_protobuf, ("value",))):
        engine.drain(engine.target(topic.name, registry=registry))
        rows = engine.rows(topic.name).select(*columns, "_kafka.schema_id").collect()
        assert len(rows) == 2
        assert len({tuple(each) for each in rows}) == 1
        assert_proved(proof(engine, topic.name, registry=registry))
    letters = engine.letters(of_protobuf.name).orderBy("offset").select("reason").collect()
    assert [each[0] for each in letters] == ["malformed", "incompatible_schema", "incompatible_schema"]


def test_records_of_other_tables_are_counted_by_the_guid_that_names_them(
    engine: Engine, stating: GuidRegistry
) -> None:
    topic, registry = Topic(engine, stating.url), Registry(stating.url)
    own = Source(f"{topic.name}-own")
    for subject, schema, row in ((own.subject, TRADE, trade(1)), (f"{topic.name}-other", OTHER, {"id": 1})):
        headers: Headers = []
        topic.send(topic.avro(row, headers, BY_HEADER, schema, str(subject)), headers)
    [(_, held)] = headers
    assert isinstance(held, bytes)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic.name, registry=registry, value=own))
    assert outcome.ledger.filtered_schemas == {str(uuid.UUID(bytes=held[1:])): 1}
    assert outcome.ledger.applied == 1
    assert_proved(proof(engine, topic.name, registry=registry, value=own))


def test_a_key_that_is_emitted_as_it_came_keeps_the_header_that_names_its_schema(
    engine: Engine, stating: GuidRegistry
) -> None:
    topic, registry, out = Topic(engine, stating.url), Registry(stating.url), f"out{uuid.uuid4().hex[:12]}"
    for number, how in enumerate((BY_HEADER, BY_PREFIX)):
        headers: Headers = [("other", b"x")]
        key = topic.key({"n": number}, headers, how)
        topic.send(topic.avro(trade(number), headers, how), headers, key)
    engine.flush()
    engine.drain(engine.target(topic.name, registry=registry, emit=Emit(out)))
    settings: dict[str, Any] = {"registry": registry, "key": Source(f"{topic.name}-key", column="k")}
    (outcome,) = engine.drain(engine.target(out, **settings))
    assert outcome.ledger.rejected == {}
    rows = engine.rows(out).orderBy("id").select("id", "k.n", "_kafka.headers").collect()
    assert [tuple(each[:2]) for each in rows] == [(0, 0), (1, 1)]
    assert [sorted(each["key"] for each in row[2] if each["key"][:5] != "calve") for row in rows] == [
        [KEY],
        [],
    ]
    masked = f"out{uuid.uuid4().hex[:12]}"
    mask = Mask({"side": Rule("null")}, key="null", headers="keep")
    settings = {"table": f"{topic.name}_m", "registry": registry, "emit": Emit(masked), "steps": (mask,)}
    engine.drain(engine.target(topic.name, **settings))
    engine.drain(engine.target(masked, registry=registry))
    found = engine.rows(masked).select("_kafka.headers").collect()
    assert [[each["key"] for each in row[0] if each["key"] == KEY] for row in found] == [[], []]


def test_a_version_that_does_not_fit_the_table_is_one_by_its_guid_too(
    engine: Engine, stating: GuidRegistry
) -> None:
    topic, registry = Topic(engine, stating.url), Registry(stating.url)
    unfit = json.dumps({"type": "record", "name": "Other", "fields": [{"name": "id", "type": "string"}]})
    for subject, schema, row in (("a", TRADE, trade(1)), ("b", unfit, {"id": "x"})):
        headers: Headers = []
        topic.send(topic.avro(row, headers, BY_HEADER, schema, f"{topic.name}-{subject}"), headers)
    engine.flush()
    own = Source(f"{topic.name}-*")
    (outcome,) = engine.drain(engine.target(topic.name, registry=registry, value=own))
    assert outcome.ledger.rejected == {"incompatible_schema": 1}
    assert_proved(proof(engine, topic.name, registry=registry, value=own))


def test_a_schema_that_is_registered_while_the_job_runs_is_found_by_its_guid(
    engine: Engine, stating: GuidRegistry
) -> None:
    topic, registry = Topic(engine, stating.url), Registry(stating.url)
    value, guid = with_header(topic, 1)
    topic.send(value, [(VALUE, guid)])
    engine.flush()
    target = engine.target(topic.name, registry=registry)
    engine.drain(target)
    headers: Headers = []
    topic.send(topic.avro(trade(2) | {"note": "x"}, headers, BY_HEADER, json.dumps(WIDER)), headers)
    engine.flush()
    (outcome,) = engine.drain(target)
    assert outcome.ledger.rejected == {}
    found = engine.rows(topic.name).orderBy("id").select("id", "note").collect()
    assert [tuple(each) for each in found] == [(1, None), (2, "x")]


@pytest.mark.long
def test_dead_letters_come_back_by_the_schema_that_their_header_names(
    engine: Engine, stating: GuidRegistry
) -> None:
    topic, registry = Topic(engine, stating.url), Registry(stating.url)
    value, guid = with_header(topic, 1)
    topic.send(value, [(VALUE, guid)])
    headers: Headers = []
    topic.send(topic.avro(trade(2) | {"note": "x"}, headers, BY_HEADER, json.dumps(WIDER), "x"), headers)
    engine.flush()
    settings: dict[str, Any] = {"registry": registry, "dead_letter_budget": Budget(records=10)}
    (outcome,) = engine.drain(engine.target(topic.name, **settings))
    assert outcome.ledger.rejected == {"incompatible_schema": 1}
    topic.avro(trade(2) | {"note": "x"}, [], BY_HEADER, json.dumps(WIDER))  # registered for the topic now
    request = Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00")
    engine.table(topic.name).set_properties({REDRIVE: request.to_json()})
    engine.drain(engine.target(topic.name, **settings))
    found = engine.rows(topic.name).orderBy("id").select("id", "note").collect()
    assert [tuple(each) for each in found] == [(1, None), (2, "x")]
    assert_proved(proof(engine, topic.name, registry=registry))


def test_a_context_is_a_registry_of_its_own_and_an_alias_is_the_subject_that_it_stands_for(
    engine: Engine, stating: GuidRegistry
) -> None:
    topic, registry = Topic(engine, stating.url_of(".staging")), Registry(stating.url_of(".staging"))
    for how in (BY_PREFIX, BY_HEADER):
        headers: Headers = []
        topic.send(topic.avro(trade(1), headers, how), headers)
    engine.flush()
    engine.drain(engine.target(topic.name, registry=registry))
    assert engine.rows(topic.name).count() == 2
    assert_proved(proof(engine, topic.name, registry=registry))
    stating.aliases[f"{topic.name}-alias"] = f"{topic.name}-value"
    own = Source(f"{topic.name}-alias")
    target: dict[str, Any] = {"table": f"{topic.name}_alias", "registry": registry, "value": own}
    (outcome,) = engine.drain(engine.target(topic.name, **target))
    assert (outcome.ledger.applied, outcome.ledger.filtered) == (2, 0)
    assert_proved(proof(engine, f"{topic.name}_alias", registry=registry, value=own))


@pytest.mark.full
@pytest.mark.parametrize("choice", get_args(EngineChoice)[1:])
@pytest.mark.parametrize("point", [f"{step}.{edge}" for step in STEPS for edge in ("begin", "end")])
def test_no_record_is_lost_or_doubled_whatever_dies(
    engine: Engine, stating: GuidRegistry, point: str, choice: EngineChoice
) -> None:
    topic, registry = Topic(engine, stating.url), Registry(stating.url)
    settings: dict[str, Any] = {
        "registry": registry,
        "engine": choice,
        "dead_letter_budget": Budget(records=99),
    }
    for number in range(2):
        if number:
            with at(point, die), pytest.raises(Retryable, match="dead"):
                engine.drain(engine.target(topic.name, **settings))
        for offset in range(3):
            headers: Headers = []
            of_value = BY_HEADER if offset else BY_PREFIX
            topic.send(topic.avro(trade(offset), headers, of_value), headers)
        topic.send(b"", [(VALUE, b"\x01" + bytes(range(16)))])
        engine.flush()
    engine.drain(engine.target(topic.name, **settings))
    assert engine.offsets(topic.name) == [(0, each) for each in (0, 1, 2, 4, 5, 6)]
    assert engine.letter_offsets(topic.name) == [(0, 3), (0, 7)]
    assert_proved(proof(engine, topic.name, registry=registry))


def die(_table: str) -> None:
    raise Retryable("dead")


def test_spark_joins_header_and_value_as_verify_does(engine: Engine) -> None:
    guid = bytes(range(16))
    held = [
        None,
        b"",
        b"\0",
        b"\0\0\0\0\1",
        b"\0\0\0\0\1x",
        b"\1",
        b"\1" + guid[1:],
        b"\1" + guid,
        b"\1" + guid + b"x",
    ]
    headers: list[list[tuple[str, bytes | None]] | None] = [None, []]
    headers += [[(name, each)] for each in (*held, b"\2", b"\2" + guid) for name in (VALUE, KEY)]
    headers += [[(VALUE, first), (VALUE, last)] for first in held for last in held]
    pairs = [(value, each) for each in headers for value in (None, b"", b"v")]
    kind = "value binary, headers array<struct<key: string, value: binary>>"
    found = engine.spark.createDataFrame(pairs, kind).coalesce(1)
    made = found.select(named_column("value", CONFLUENT, F.col("value"), F.col("headers")).alias("made"))
    read = Records(values=[value for value, _ in pairs], headers=[each for _, each in pairs])
    joined = [None if each[0] is None else bytes(each[0]) for each in made.collect()]
    assert joined == CONFLUENT.of(read, "value")
