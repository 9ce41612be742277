"""Tables of topics whose schemas are in the AWS Glue Schema Registry, or in a registry behind OAuth."""

from __future__ import annotations

import json
import time
import urllib.parse
import uuid
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from calve.config.job import GlueRegistry, OAuth, Registry, Source
from calve.errors import Retryable
from calve.table.position import Ledger
from tests.integration.support.engine import Engine, everything
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.servers.gate import Answer, Gate, Request
from tests.integration.support.servers.glue_schemas import REGION, GlueSchemas, framed, serving

FIELDS = [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}]
FIRST = {"type": "record", "name": "Event", "fields": FIELDS}
SECOND = {**FIRST, "fields": [*FIELDS, {"name": "more", "type": ["null", "string"], "default": None}]}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "n", "type": "long"}]}
OBJECT = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "text": {"type": "string"}, "price": {"type": "number"}},
}


@pytest.fixture(scope="module")
def glue(engine: Engine) -> Iterator[GlueSchemas]:
    with serving() as served, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_GLUE", served.url)
        yield served


def avro(schema: Any, **row: Any) -> bytes:
    out = BytesIO()
    schemaless_writer(out, parse_schema(schema), row)
    return out.getvalue()


def topic_of(engine: Engine, *values: bytes | None) -> str:
    topic = f"t{uuid.uuid4().hex[:12]}"
    engine.create(topic, partitions=1)
    for value in values:
        engine.send(topic, value, partition=0)
    engine.flush()
    return topic


@pytest.mark.long
def test_values_of_the_glue_registry_are_rows_with_and_without_compression(
    engine: Engine, glue: GlueSchemas
) -> None:
    topic = topic_of(engine)
    registry = GlueRegistry(glue.name, REGION)
    first, second = (glue.register(topic, each) for each in (FIRST, SECOND))
    other = glue.register(f"{topic}-other", FIRST | {"name": "Other"})
    row = avro(FIRST, id=-(2**63), text="ä" * 3000)
    unknown = framed(uuid.uuid4(), row, compressed=True)
    bomb = framed(first, b"\0" * (64 * 2**20 + 1), compressed=True)
    values: dict[str, list[bytes | None]] = {
        "good": [
            framed(first, row),
            framed(first, row, compressed=True),
            framed(second, avro(SECOND, id=2**63 - 1, text="", more="x"), compressed=True),
        ],
        "unknown_schema_id": [unknown],
        "malformed": [
            framed(first, b"")[:1] + b"\x05" + first.bytes + b"no zlib",
            framed(first, row, compressed=True)[:-1],
            framed(first, row[:-1], compressed=True),
            bomb,
        ],
        "trailing_bytes": [framed(first, row + b"x", compressed=True), framed(first, row + b"x")],
        "truncated": [framed(first, b"")[:-1]],
        "bad_magic": [b"\x03\x01" + first.bytes + row, b"\x00\x00\x00\x00\x01" + row],
        "null_value": [None],
        "incompatible_schema": [framed(other, row, compressed=True), framed(other, row)],
    }
    for value in [each for group in values.values() for each in group]:
        engine.send(topic, value, partition=0)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic, registry=registry))
    rejected = {reason: len(group) for reason, group in values.items() if reason != "good"}
    assert outcome.ledger.rejected == rejected
    rows = (
        engine.rows(topic).orderBy("_kafka.offset").select("id", "text", "more", "_kafka.schema_id").collect()
    )
    assert [tuple(each) for each in rows] == [
        (-(2**63), "ä" * 3000, None, 1),
        (-(2**63), "ä" * 3000, None, 1),
        (2**63 - 1, "", "x", 2),
    ]
    letters = engine.letters(topic).orderBy("offset").select("reason", "value", "schema_id").collect()
    sent = [(reason, value) for reason, group in values.items() for value in group if reason != "good"]
    assert [(each[0], bytes(each[1]) if each[1] is not None else None) for each in letters] == sent
    assert {each[2] for each in letters if each[0] in ("malformed", "trailing_bytes")} == {1}
    assert {each[2] for each in letters if each[0] in ("unknown_schema_id", "incompatible_schema")} == {None}
    assert_proved(proof(engine, topic, registry=registry))
    own = Source(topic)
    (outcome,) = engine.drain(
        engine.target(topic, table=f"{topic}_own", registry=registry, value=own, on_error="skip")
    )
    skipped = {reason: count for reason, count in rejected.items() if reason != "incompatible_schema"}
    assert outcome.ledger == Ledger(
        span=16,
        consumed=16,
        applied=3,
        rows_appended=3,
        skipped=skipped,
        skipped_schemas={str(uuid.UUID(bytes=unknown[2:18])): 1},
        filtered=2,
        filtered_schemas={str(other): 2},
    )
    assert_proved(proof(engine, f"{topic}_own", registry=registry, value=own))


@pytest.mark.long
def test_avro_and_json_of_the_glue_registry_are_one_table_by_a_pattern(
    engine: Engine, glue: GlueSchemas
) -> None:
    topic = topic_of(engine)
    registry, source = GlueRegistry(glue.name, REGION), Source(f"{topic}.*")
    first = glue.register(f"{topic}.avro", FIRST)
    second = glue.register(f"{topic}.json", OBJECT, "JSON")
    good = json.dumps({"id": 3, "text": "c", "price": 1.5}).encode()
    for value in (
        framed(first, avro(FIRST, id=1, text="a"), compressed=True),
        framed(second, good),
        framed(second, good, compressed=True),
        framed(second, good + b"}", compressed=True),
        framed(second, zlib.compress(good), compressed=True),
    ):
        engine.send(topic, value, partition=0)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic, registry=registry, value=source))
    assert (outcome.ledger.applied, outcome.ledger.rejected) == (3, {"malformed": 2})
    rows = engine.rows(topic).orderBy("_kafka.offset").select("id", "text", "price").collect()
    assert [tuple(each) for each in rows] == [(1, "a", None), (3, "c", 1.5), (3, "c", 1.5)]
    assert_proved(proof(engine, topic, registry=registry, value=source))


@pytest.mark.full
def test_messages_of_the_glue_registry_are_tables_by_their_place_among_the_names(
    engine: Engine, glue: GlueSchemas
) -> None:
    text = (
        'syntax = "proto3"; message B { int32 b = 1; message C { int32 c = 1; } message A { int32 a = 1; } }'
    )
    topic, registry = topic_of(engine), GlueRegistry(glue.name, REGION)
    schema = glue.register(topic, text, "PROTOBUF")
    places = {"B": b"\x00", "B.A": b"\x01", "B.C": b"\x02"}
    for place, payload, compressed in (
        (places["B"], b"\x08\x05", False),
        (places["B.C"], b"\x08\x06", True),
        (places["B.A"], b"\x08\x07", False),
        (places["B.C"], b"\x08", True),
        (b"\x03", b"", False),
        (b"", b"", False),
        (b"\x82\x00", b"\x08\x08", False),
    ):
        engine.send(topic, framed(schema, place + payload, compressed=compressed), partition=0)
    engine.flush()
    found = {}
    for name, source in {"first": Source(), "inner": Source(message="B.C")}.items():
        (outcome,) = engine.drain(
            engine.target(topic, table=f"{topic}_{name}", registry=registry, value=source)
        )
        rows = [row[0] for row in engine.rows(f"{topic}_{name}").orderBy("_kafka.offset").collect()]
        found[name] = (rows, outcome.ledger.filtered, outcome.ledger.rejected)
        assert_proved(proof(engine, f"{topic}_{name}", registry=registry, value=source))
    assert found == {
        "first": ([5], 0, {"incompatible_schema": 3, "malformed": 3}),
        "inner": ([6], 2, {"malformed": 4}),
    }


@pytest.mark.full
def test_keys_of_the_glue_registry_are_a_column_with_and_without_compression(
    engine: Engine, glue: GlueSchemas
) -> None:
    topic = topic_of(engine)
    registry, source = GlueRegistry(glue.name, REGION), Source(f"{topic}.key")
    values, keys = glue.register(topic, FIRST), glue.register(f"{topic}.key", KEY)
    value = framed(values, avro(FIRST, id=1, text="a"), compressed=True)
    good, payload = framed(keys, avro(KEY, n=5), compressed=True), avro(KEY, n=5)
    for key in (good, framed(keys, payload), None, framed(values, payload), good[:-1], b"\x03\x05"):
        engine.send(topic, value, key=key, partition=0)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic, registry=registry, key=source))
    assert outcome.ledger.rejected == {"key_incompatible_schema": 1, "key_malformed": 2}
    rows = engine.rows(topic).orderBy("_kafka.offset").select("key.n", "_kafka.key", "id").collect()
    assert [tuple(each) for each in rows] == [
        (5, good, 1),
        (5, framed(keys, payload), 1),
        (None, None, 1),
    ]
    assert good[:-1] in {bytes(each["key"]) for each in engine.letters(topic).collect()}
    assert_proved(proof(engine, topic, registry=registry, key=source))


class OAuthGate(Gate):
    """The real registry behind tokens that live a second, with a token endpoint of its own."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.given: dict[str, float] = {}
        self.down = False

    def answer(self, request: Request) -> Answer | None:
        if self.down:
            return Answer(503)
        if request.path.endswith("/token"):
            form = dict(urllib.parse.parse_qsl(request.body.decode()))
            assert form == {"grant_type": "client_credentials"}
            token = uuid.uuid4().hex
            self.given[token] = time.monotonic() + 1
            return Answer(200, body=json.dumps({"access_token": token, "expires_in": 1}).encode())
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or self.given.get(token, 0) < time.monotonic():
            return Answer(401)
        return self.pass_on(request)


def test_a_registry_behind_oauth_is_read_and_one_that_is_down_stops_the_table(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT", json.dumps({"client_id": "calve", "client_secret": "hunter2"}))
    topic = engine.topic(partitions=1)
    engine.produce(topic, 3)
    with OAuthGate(engine.stack.registry_url) as gate:
        registry = Registry(gate.url, secret="env:CLIENT", oauth=OAuth(f"{gate.url}/token"))
        target = engine.target(topic, registry=registry)
        engine.drain(target)
        assert engine.offsets(topic) == everything(3)
        engine.produce(topic, 2)
        gate.down = True
        with pytest.raises(Retryable, match="answered HTTP 503"):
            engine.round(target)
        gate.down = False
        engine.drain(target)
        assert engine.offsets(topic) == everything(5)
        assert len(gate.given) > 1
