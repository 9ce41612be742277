"""The job and `calve verify` agree on every record of random schemas, and on every event of random histories of a database."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from random import Random, SystemRandom
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema

from tests import random_avro, random_json, random_protobuf
from tests.integration.decode.test_evolution import any_schema
from tests.integration.support.engine import Engine
from tests.integration.support.proofs import proof
from tests.integration.support.records.database import BY_ID, BY_LSN, BY_RECORD_KEY, KEPT, Database

pytestmark = pytest.mark.long

Make = Callable[[], bytes]
"""Makes a payload of a schema."""
FIRST = {
    "AVRO": '{"type": "record", "name": "Top", "fields": [{"name": "first", "type": "int", "default": 0}]}',
    "JSON": '{"type": "object", "properties": {"first": {"type": "integer"}}}',
    "PROTOBUF": 'syntax = "proto3"; message Top { int32 first = 1000; }',
}
ENGINES = {"AVRO": ("rows", "columnar"), "JSON": ("rows",), "PROTOBUF": ("rows",)}
ENCODINGS = ("avro", "json", "connect")
SCHEMAS, RECORDS = 10, 24


@pytest.mark.parametrize("kind", FIRST)
def test_every_record_of_ten_schemas(engine: Engine, kind: str) -> None:
    found = disagreements(engine, kind, seed=0)
    assert not found, "\n".join(found)


@pytest.mark.full
@pytest.mark.parametrize("kind", FIRST)
def test_every_record_of_two_thousand_schemas(engine: Engine, kind: str) -> None:
    dice = SystemRandom()
    found = [each for _ in range(67) for each in disagreements(engine, kind, dice.getrandbits(64))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "encoding",
    [pytest.param(each, marks=() if each == "avro" else pytest.mark.long) for each in ENCODINGS],
)
def test_every_event_of_a_random_history(engine: Engine, encoding: str) -> None:
    found = events_that_differ(engine, encoding, seed=ENCODINGS.index(encoding))
    assert not found, "\n".join(found)


@pytest.mark.full
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_event_of_many_random_histories(engine: Engine, encoding: str) -> None:
    dice = SystemRandom()
    found = [each for _ in range(40) for each in events_that_differ(engine, encoding, dice.getrandbits(64))]
    assert not found, "\n".join(found)


def events_that_differ(engine: Engine, encoding: str, seed: int) -> list[str]:
    """What both say of the events of a table's life, some of which are damaged on their way."""
    dice = Random(seed)
    mode, partitions = dice.choice([BY_RECORD_KEY, BY_ID, KEPT, BY_LSN]), dice.choice([1, 2])
    database = Database(engine, partitions, full=dice.random() < 0.5, encoding=encoding)
    target, told = database.target(mode), list[str]()
    for _ in range(2):
        for _ in range(dice.randint(1, 4)):
            live(database, dice)
            time.sleep(0.002)  # a truncation ends what is older in the other partitions
        engine.flush()
        engine.drain(target)
        found = proof(engine, database.topic, value=database.value)
        told += [f"{encoding} {seed} {mode}: {each}" for each in (*found.findings, found.fault) if each]
    return told


def live(database: Database, dice: Random) -> None:
    """Something happens to the table."""
    match dice.randrange(7):
        case 0:
            database.truncate()
        case 1:
            database.snapshot()
        case 2:
            database.message()
        case 3:
            database.redeliver(dice.randint(1, 9))
        case 4:
            with database.transaction(commit=dice.random() < 0.5):
                database.churn(dice, 10)
        case 5:
            for partition, key, value in dice.choices(database.log, k=10) if database.log else ():
                database.engine.send(database.topic, wrong(value, dice), key=key or None, partition=partition)
        case _:
            database.churn(dice, 20)


def wrong(event: bytes | None, dice: Random) -> bytes | None:
    """An event with other bytes, or with another value somewhere."""
    if event is None or event[:1] != b"{" or dice.random() < 0.2:
        return event and random_avro.mutated(event, dice)
    return json.dumps(random_json.disturbed(json.loads(event), dice)).encode()


def disagreements(engine: Engine, kind: str, seed: int) -> list[str]:
    """What both say of the records of one topic, whose subject has many versions without a field in common."""
    random, topic = Random(seed), f"t{uuid.uuid4().hex[:12]}"
    engine.create(topic, partitions=1)
    sent: list[tuple[str, bytes]] = []
    with any_schema(engine):
        engine.registry.register_schema(f"{topic}-value", Schema(FIRST[kind], kind))
        for text, make in versions(kind, random, SCHEMAS):
            number = engine.registry.register_schema(f"{topic}-value", Schema(text, kind))
            sent += [(text, b"\x00" + number.to_bytes(4, "big") + make()) for _ in range(RECORDS)]
    random.shuffle(sent)
    for _, value in sent:
        engine.send(topic, value, partition=0)
    engine.flush()
    told = []
    for each in ENGINES[kind]:
        table = f"{topic}_{each}"
        engine.drain(engine.target(topic, table=table, engine=each))
        found = proof(engine, table)
        told += [f"{kind} {seed} {each}: {found.fault}"] if found.fault else []
        for finding in found.findings:
            what = f"{kind} {seed} {each}: {finding.message} {finding.columns}"
            places = [place for start, to in finding.offsets for place in range(start, to)]
            told += [f"{what}\n  {sent[place][0]}\n  {sent[place][1][5:]!r}" for place in places[:3]] or [
                what
            ]
    return told


def versions(kind: str, random: Random, size: int) -> Iterator[tuple[str, Make]]:
    numbers = count(1)
    for _ in range(size):
        match kind:
            case "AVRO":
                schema = random_avro.Schemas(random, wide=True, numbers=numbers).record()
                yield json.dumps(schema), avro(schema, random)
            case "JSON":
                made, value = random_json.Schemas(random, numbers).top()
                yield json.dumps(made), json_text(value, random)
            case _:
                text, write = random_protobuf.Schemas(random, numbers).top()
                yield text, protobuf(write, random)


def avro(schema: Any, random: Random) -> Make:
    values = random_avro.Values(random)
    return lambda: damaged(values.of(schema), random)


def json_text(value: Callable[[], Any], random: Random) -> Make:
    return lambda: random_json.payload(value(), random)


def protobuf(write: Make, random: Random) -> Make:
    return lambda: random.choice([b"\0"] * 12 + [b"", b"\x02\x00", b"\x02\x02"]) + damaged(write(), random)


def damaged(value: bytes, random: Random) -> bytes:
    return random_avro.mutated(value, random) if random.random() < 0.4 else value
