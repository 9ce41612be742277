"""Random schemas that evolve at random, with random data by the official serializers: every value is where it belongs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from calve.schema.evolution import data_columns
from tests.integration.decode.test_evolution import any_schema
from tests.integration.support.engine import Engine
from tests.integration.support.records.avro_records import same, spark_rows
from tests.integration.support.records.json_topics import proved
from tests.protobuf_classes import message_class
from tests.random_formats import (
    avro_schema,
    fill_message,
    json_schema,
    json_text,
    protobuf_schema,
    without_absent_lists,
)
from tests.random_schemas import Field, Steps, newest_names, padded, rows_of

VERSIONS = 17
RECORDS = 4
FORMATS: dict[str, Callable[[tuple[Field, ...]], str]] = {
    "AVRO": lambda fields: json.dumps(avro_schema(fields)),
    "JSON": lambda fields: json.dumps(json_schema(fields)),
    "PROTOBUF": protobuf_schema,
}
DESERIALIZER = {"use.deprecated.format": False}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("AVRO", marks=pytest.mark.long),
        *(pytest.param(each, marks=pytest.mark.full) for each in ("JSON", "PROTOBUF")),
    ],
)
def test_two_topics_of_schemas(engine: Engine, kind: str) -> None:
    for seed in range(2):
        keeps_every_value(engine, kind, Random(seed))


@pytest.mark.full
@pytest.mark.parametrize(("kind", "topics"), [("AVRO", 30), ("JSON", 10), ("PROTOBUF", 20)])
def test_a_thousand_schemas(engine: Engine, kind: str, topics: int) -> None:
    for _ in range(topics):
        seed = SystemRandom().getrandbits(64)
        print(f"seed of the topic: {seed}")  # noqa: T201 shown where it fails
        keeps_every_value(engine, kind, Random(seed))


def keeps_every_value(engine: Engine, kind: str, random: Random) -> None:
    """One topic: versions registered one after the other, records of all so far in any order, a round now and then."""
    steps = Steps(random, collections=kind != "PROTOBUF")
    topic, versions, ids = f"t{uuid.uuid4().hex[:12]}", [steps.first()], list[int]()
    engine.create(topic, partitions=1)
    sent: list[tuple[tuple[Field, ...], dict[str, Any]] | None] = []
    target = engine.target(topic)
    with any_schema(engine):
        for number in range(VERSIONS):
            if number:
                versions.append(steps.next(versions[-1]))
            ids.append(registered(engine, topic, kind, versions[-1]))
            misfit = steps.broken(versions[-1]) if random.random() < 0.2 else None
            if misfit:
                send(engine, topic, kind, registered(engine, topic, kind, misfit), misfit, steps.row(misfit))
                sent.append(None)
            for _ in range(RECORDS):
                place = random.randrange(len(versions))
                row = send(engine, topic, kind, ids[place], versions[place], steps.row(versions[place]))
                sent.append((versions[place], row))
            if number == VERSIONS // 2:
                engine.flush()
                engine.drain(target)
    engine.flush()
    engine.drain(target)
    names = newest_names(versions)
    columns = data_columns(engine.table(topic).schema)
    expected = [padded(columns, rows_of(fields, row, names)) for fields, row in filter(None, sent)]
    assert [plain(columns, row) for row in spark_rows(engine, topic)] == [same(each) for each in expected]
    misfits = [(0, n) for n, each in enumerate(sent) if each is None]
    assert not misfits or engine.letter_offsets(topic) == misfits
    proved(engine, topic)


def registered(engine: Engine, topic: str, kind: str, fields: tuple[Field, ...]) -> int:
    schema = Schema(FORMATS[kind](fields), kind)
    return int(engine.registry.register_schema(f"{topic}-value", schema))


def send(
    engine: Engine, topic: str, kind: str, schema_id: int, fields: tuple[Field, ...], row: dict[str, Any]
) -> dict[str, Any]:
    """Produce a record; gives it as the official deserializer reads it, but for the JSON text of exact numbers."""
    schema, context = FORMATS[kind](fields), SerializationContext(topic, MessageField.VALUE)
    if kind == "AVRO":
        conf = {"auto.register.schemas": False, "use.latest.version": False}
        value = AvroSerializer(engine.registry, schema, conf=conf)(row, context)
        found: dict[str, Any] = AvroDeserializer(engine.registry)(value, context)
    elif kind == "PROTOBUF":
        message = message_class(schema, "Top")()
        fill_message(message, fields, row)
        value = b"\x00" + schema_id.to_bytes(4, "big") + b"\x00" + message.SerializeToString()
        assert ProtobufDeserializer(type(message), DESERIALIZER)(value, context) == message
        found = without_absent_lists(fields, row)
    else:
        value = b"\x00" + schema_id.to_bytes(4, "big") + json_text(row)
        assert JSONDeserializer(schema)(value, context).keys() == row.keys()
        found = row
    engine.send(topic, value, partition=0)
    return found


def plain(column: Any, value: Any) -> Any:
    """What Arrow gives of a column, with maps as dictionaries."""
    if value is None or isinstance(column, str):
        return same(value)
    match column["type"]:
        case "struct":
            return {each["name"]: plain(each["type"], value[each["name"]]) for each in column["fields"]}
        case "list":
            return [plain(column["element"], each) for each in value]
    return {key: plain(column["value"], each) for key, each in value}
