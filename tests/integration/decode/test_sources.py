"""Values and keys without a registry's frame: strings, bytes, bare values of a subject or of a schema file, keys as columns.

Every case is one topic, read in one round: what Spark and PyIceberg read is compared value for value, and `verify` agrees.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema

from calve.config.job import Source
from calve.names import TableName
from calve.schema.columns import REASONS
from cli.lake import open_catalog
from cli.progress import LineProgress
from cli.verify.findings import Verification
from cli.verify.topic import Sources
from cli.verify.verification import verify
from glue_jobs.engines import batch
from glue_jobs.ingest import openers_of
from tests.integration.decode.test_evolution import any_schema
from tests.integration.support.engine import DATABASE, Engine, suspended
from tests.integration.support.records.avro_records import nullable, read, record
from tests.integration.support.records.producing import Raw, produce, unique

Row = dict[str, Any]
AVRO = json.dumps(record("R", a="int", b=nullable("string")))
FIRST = json.dumps(record("R", a="int", gone=nullable("long")))
JSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "o": {"type": "object", "properties": {"x": {"type": "string"}}},
        },
    }
)
FRAME = b"\x00\x00\x00\x00\x01"
DEEP = b"[" * 2_000 + b"]" * 2_000


@dataclass(frozen=True, slots=True)
class Case:
    """How a topic is read; each record's value (and key), and the row that it is, or the reason why it is none."""

    value: Source
    records: Sequence[tuple[Any, Any, Row | str]]
    key: Source | None = None
    subjects: dict[str, list[Schema]] = field(default_factory=dict)


STRING = Case(
    Source(format="string"),
    [
        ("zażółć 😀", None, {"id": None, "value": "zażółć 😀"}),
        (None, None, {"id": None, "value": None}),
        (b"", None, {"id": None, "value": ""}),
        (FRAME + b"x", None, {"id": None, "value": "\0\0\0\0\x01x"}),
        ("x" * 1_000_000, None, {"id": None, "value": "x" * 1_000_000}),
        *((each, None, "malformed") for each in (b"\xff", b"\xed\xa0\x80", b"a\xc3")),
        ("v", '{"a":1,"o":{"x":"y"},"z":1}', {"id": {"a": 1, "o": {"x": "y"}}, "value": "v"}),
        *(
            ("v", each, "key_malformed")
            for each in ("null", "1", '{"a":1}}', '{"a":1},"b":{"a":2}', '{"a":"1"}', DEEP)
        ),
        (b"\xff", "1", "malformed"),
    ],
    key=Source(format="json", prefix="none", schema=JSON, column="id"),
)
LENGTHS = [b"\x02\x02" + length for length in (b"\x01", b"\xfe\xff\xff\xff\x0f", b"\xff" * 10, b"\x80" * 9)]
BARE_AVRO = Case(
    Source(prefix="none"),
    [
        (b"\x02\x02\x02x", None, {"a": 1, "gone": None, "b": "x"}),
        (b"\x01\x00", None, {"a": -1, "gone": None, "b": None}),
        (None, None, "null_value"),
        (b"", None, "malformed"),
        (b"\x02", None, "malformed"),
        (b"\x02\x02\x02xx", None, "trailing_bytes"),
        (FRAME + b"\x02\x02\x02x", None, "trailing_bytes"),
        (DEEP, None, "malformed"),
        *((each, None, "malformed") for each in LENGTHS),
    ],
    subjects={"value": [Schema(FIRST, "AVRO"), Schema(AVRO, "AVRO")]},
)


def _with_long_key(found: Row | str) -> Row | str:
    return (
        found
        if isinstance(found, str)
        else {"key": 2} | {name: value for name, value in found.items() if name != "gone"}
    )


FILE_JSON = Case(
    Source(format="json", prefix="none", schema=JSON, rest="rest"),
    [
        (b'{"a":1,"o":{"x":"y"}}', None, {"a": 1, "o": {"x": "y"}, "rest": None}),
        (
            b' {"z":[1,{"y":2.50,"x":null}], "a":2, "e":"\\u0041 \\"", "A":3}',
            None,
            {"a": 2, "o": None, "rest": '{"A":3,"e":"A \\"","z":[1,{"x":null,"y":2.5}]}'},
        ),
        (b'{"n":null,"":{},"o":{"w":1}}', None, {"a": None, "o": {"x": None}, "rest": '{"":{},"n":null}'}),
        (
            b'{"\xef\xbf\xbd":1,"\xf0\x9f\x98\x80":12345678901234567890123,"d":1e2}',
            None,
            {"a": None, "o": None, "rest": '{"d":100.0,"😀":12345678901234567890123,"\ufffd":1}'},
        ),
        (b'{"a":1,"a":4}', None, {"a": 4, "o": None, "rest": None}),
        (b"{}", None, {"a": None, "o": None, "rest": None}),
        (None, None, "null_value"),
        *(
            (each, None, "malformed")
            for each in (
                b"",
                b"null",
                b"[]",
                b'{"z":1,"z":2}',
                b'{"z":{"y":1,"y":2}}',
                b'{"o":{"x":"1","x":"2"}}',
                b'{"z":1e400}',
                b'{"z":"\\ud800"}',
                b'{"z":NaN}',
                b'{"z":1}}',
                b'{"z":1},{"a":2}',
                b'{"z":1}]}',
                b'{"z":"\xff"}',
                FRAME + b'{"a":1}',
                b'{"z":' + DEEP + b"}",
                b'{"z":' + b"9" * 1_001 + b"}",
            )
        ),
    ],
)
JSON_WITHOUT_REST = Case(
    Source(format="json", prefix="none", schema=JSON),
    [(b'{"a":1,"z":1,"z":{"y":1,"y":2}}', None, {"a": 1, "o": None}), (FRAME + b"{}", None, "malformed")],
)
KEY_SCALARS: list[tuple[bytes | None, Any]] = [
    (b'"k"', "k"),
    (b' "a\\u0042\\"" \n', 'aB"'),
    (b"null", None),
    (None, None),
    *(
        (each, "key_malformed")
        for each in (
            b"",
            b"k",
            b'"k',
            b"1",
            b'"a","b":"c"',
            b'"a"}',
            b'"a"},{"key":"b"',
            b'"\xff"',
            b'["a"]',
            b"{}",
        )
    ),
    (b'"\\ud800"', "key_malformed"),
    (b'"' + b"\\n" * 50_000 + b'"', "\n" * 50_000),
]
BYTES = Case(
    Source(format="bytes", column="raw"),
    [
        *((each, None, {"key": None, "raw": each}) for each in (b"\xff\x00", None, b"", FRAME, DEEP)),
        *(
            (b"v", key, found if found == "key_malformed" else {"key": found, "raw": b"v"})
            for key, found in KEY_SCALARS
        ),
    ],
    key=Source(format="json", prefix="none", schema='{"type": "string"}'),
)
FILE_AVRO = Case(
    Source(format="avro", prefix="none", schema=AVRO),
    [
        *((value, b"\x04", _with_long_key(found)) for value, _, found in BARE_AVRO.records),
        (b"\x02\x00", b"\xff" * 9 + b"\x01", {"key": -(2**63), "a": 1, "b": None}),
        (b"\x02\x00", None, {"key": None, "a": 1, "b": None}),
        *((b"\x02\x00", each, "key_malformed") for each in (b"", b"\x04\x04", b"\xff" * 11)),
    ],
    key=Source(format="avro", prefix="none", schema='"long"'),
)
FILE_PROTOBUF = Case(
    Source(
        format="protobuf",
        prefix="none",
        schema='syntax = "proto3"; message A { int32 x = 1; } message B { int32 a = 1; optional string b = 2; }',
        message="B",
    ),
    [
        (b"\x08\x05\x12\x01x", b"k", {"key": b"k", "a": 5, "b": "x"}),
        (b"", b"", {"key": b"", "a": 0, "b": None}),
        (None, None, "null_value"),
        *((each, None, "malformed") for each in (b"\x08", b"\x12\x01\xff", FRAME + b"\x00\x08\x05")),
    ],
    key=Source(format="bytes"),
)
CASES = {
    "strings, JSON objects as keys": STRING,
    "bytes, plain JSON keys": BYTES,
    "the newest version of a subject": BARE_AVRO,
    "an Avro file, plain Avro keys": FILE_AVRO,
    "a JSON file and the rest": FILE_JSON,
    "a Protobuf file": FILE_PROTOBUF,
    "a JSON file": JSON_WITHOUT_REST,
}


def topic_of(engine: Engine, records: Sequence[Raw] = ()) -> str:
    topic = unique("s")
    engine.create(topic, partitions=1)
    engine.configure(topic, **{"retention.ms": "-1"})
    produce(engine.stack.bootstrap_servers, topic, records)
    return topic


def verified(engine: Engine, topic: str, value: Source, key: Source | None = None) -> Verification:
    job = engine.job()
    sources = Sources(open_catalog(job.lake), job.kafka, job.registry, job.lake.region, value, key)
    return verify(TableName(DATABASE, topic), sources, LineProgress(lambda _: None))


def proved(engine: Engine, topic: str, value: Source, key: Source | None = None) -> None:
    found = verified(engine, topic, value, key)
    assert found.findings == ()
    assert found.complete


def unproved(found: Verification) -> dict[str, Any]:
    """The offsets that cannot be verified, by check; nothing is wrong with the others."""
    assert found.findings == ()
    return {each.name: each.figures.get("offsets") for each in found.checks if each.state == "not verifiable"}


def encoded(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_record_is_its_row_or_a_dead_letter_with_its_reason(engine: Engine, case: Case) -> None:
    raw = [Raw(encoded(value), encoded(key), headers=[("h", b"\xff")]) for value, key, _ in case.records]
    topic = topic_of(engine, raw)
    with any_schema(engine):
        for part, versions in case.subjects.items():
            ids = [engine.registry.register_schema(f"{topic}-{part}", each) for each in versions]
    (outcome,) = engine.drain(engine.target(topic, value=case.value, key=case.key))
    assert read(engine, topic) == [found for _, _, found in case.records if isinstance(found, dict)]
    reasons = [(n, found) for n, (_, _, found) in enumerate(case.records) if isinstance(found, str)]
    if reasons:
        letters = engine.letters(topic).select("offset", "reason", "stage").orderBy("offset").collect()
        assert [(row[0], row[1]) for row in letters] == reasons
        assert {row[2] for row in letters} == {"decode"}
    assert outcome.ledger.dead_lettered == len(reasons)
    facts = engine.rows(topic).select("_kafka.*").orderBy("offset").collect()
    kept = [each for each, (_, _, found) in zip(raw, case.records, strict=True) if isinstance(found, dict)]
    assert [row["key"] for row in facts] == [each.key for each in kept]
    assert {bytes(row["headers"][0]["value"]) for row in facts} == {b"\xff"}
    assert {row["schema_id"] for row in facts} == ({ids[-1]} if case.subjects else {None})
    proved(engine, topic, case.value, case.key)


def test_keys_are_read_by_the_registry_and_evolve_like_values(engine: Engine) -> None:
    narrow, wide = (json.dumps(record("K", id=kind)) for kind in ("int", "long"))
    topic = topic_of(engine)
    engine.register(topic, AVRO)
    with any_schema(engine):
        first, text, wider = (
            engine.registry.register_schema(f"{topic}-key", Schema(each, "AVRO"))
            for each in (narrow, '"string"', wide)
        )
    foreign = engine.registry.register_schema(
        f"{topic}-other", Schema(json.dumps(record("O", x="int")), "AVRO")
    )
    value = engine.encode(topic, {"a": 1, "b": None})

    def key(schema_id: int, payload: bytes) -> bytes:
        return b"\x00" + schema_id.to_bytes(4, "big") + payload

    keys: list[tuple[bytes | None, Any]] = [
        (key(first, b"\x02"), {"id": 1}),
        (key(wider, b"\xfe\xff\xff\xff\xff\x01"), {"id": 2**35 - 1}),
        (None, None),
        (key(text, b"\x02x"), "key_incompatible_schema"),
        (key(foreign, b"\x02"), "key_incompatible_schema"),
        (key(2**31 - 1, b"\x02"), "key_unknown_schema_id"),
        (key(first, b""), "key_malformed"),
        (b"\x00\x00", "key_malformed"),
        (b"plain key", "key_malformed"),
    ]
    produce(engine.stack.bootstrap_servers, topic, [Raw(value, each) for each, _ in keys])
    source = Source(column="key")
    (outcome,) = engine.drain(engine.target(topic, key=source))
    rows = [{"key": found, "a": 1, "b": None} for _, found in keys if not isinstance(found, str)]
    assert read(engine, topic) == rows
    assert list(engine.rows(topic).columns) == ["key", "a", "b", "_kafka"]
    reasons = [found for _, found in keys if isinstance(found, str)]
    messages = {row["key"]: row["message"] for row in engine.letters(topic).collect()}
    assert messages[key(first, b"")] == "key.id: expected an int, found the end of the value"
    assert messages[b"plain key"] == REASONS["key_malformed"]
    assert set(reasons) == {each for each in REASONS if each.startswith("key_")}
    assert outcome.ledger.rejected == {each: reasons.count(each) for each in reasons}
    proved(engine, topic, Source(), source)


def test_a_later_version_reads_what_comes_after_it_and_the_proof_knows_both(engine: Engine) -> None:
    topic = topic_of(engine, [Raw(b"\x02\x00")])
    source = Source(prefix="none")
    with any_schema(engine):
        engine.registry.register_schema(f"{topic}-value", Schema(FIRST, "AVRO"))
        engine.drain(engine.target(topic, value=source))
        produce(engine.stack.bootstrap_servers, topic, [Raw(b"\x04\x02\x02x")])
        engine.registry.register_schema(f"{topic}-value", Schema(AVRO, "AVRO"))
        engine.drain(engine.target(topic, value=source))
        assert read(engine, topic) == [
            {"a": 1, "gone": None, "b": None},
            {"a": 2, "gone": None, "b": "x"},
        ]
        proved(engine, topic, source)
        engine.registry.register_schema(f"{topic}-value", Schema(json.dumps(record("R", a="string")), "AVRO"))
        produce(engine.stack.bootstrap_servers, topic, [Raw(b"\x02x")])
        with suspended("schema_unsupported"):
            engine.drain(engine.target(topic, value=source))


def test_a_changed_schema_file_changes_the_table_by_the_same_law(engine: Engine) -> None:
    topic = topic_of(engine, [Raw(b"\x02\x00")])

    def drain(schema: str, value: bytes) -> Source:
        source = Source(format="avro", prefix="none", schema=schema)
        produce(engine.stack.bootstrap_servers, topic, [Raw(value)])
        engine.drain(engine.target(topic, value=source))
        return source

    drain(FIRST, b"\x04\x02\x06")
    newest = drain(AVRO, b"\x06\x02\x02x")
    assert read(engine, topic) == [
        {"a": 1, "gone": None, "b": None},
        {"a": 2, "gone": 3, "b": None},
        {"a": 3, "gone": None, "b": "x"},
    ]
    assert unproved(verified(engine, topic, newest)) == {"earlier schema": 2}
    with suspended("schema_unsupported"):
        drain(json.dumps(record("R", a="string")), b"\x02x")
    assert len(read(engine, topic)) == 3


def test_a_field_of_the_values_with_the_name_of_the_keys_column_suspends_the_table(engine: Engine) -> None:
    topic = topic_of(engine, [Raw(b"\x02", b"k")])
    value = Source(format="avro", prefix="none", schema=json.dumps(record("R", Key="int")))
    with suspended("schema_unsupported"):
        engine.drain(engine.target(topic, value=value, key=Source(format="bytes", column="key")))
    key = Source(format="bytes", column="record_key")
    engine.drain(engine.target(topic, value=value, key=key))
    assert read(engine, topic) == [{"record_key": b"k", "Key": 1}]
    with suspended("schema_unsupported"):
        engine.drain(engine.target(topic, value=value, key=Source(format="bytes", column="Key")))


@pytest.mark.full
def test_a_table_gets_a_key_later_and_loses_it_again(engine: Engine) -> None:
    value, key = Source(format="string"), Source(format="string")
    topic = topic_of(engine, [Raw(b"1", b"k1")])
    engine.drain(engine.target(topic, value=value))
    produce(engine.stack.bootstrap_servers, topic, [Raw(b"2", b"k2")])
    engine.drain(engine.target(topic, value=value, key=key))
    proved(engine, topic, value, key)
    produce(engine.stack.bootstrap_servers, topic, [Raw(b"3", b"\xff")])
    engine.drain(engine.target(topic, value=value))
    assert unproved(verified(engine, topic, value)) == {"earlier schema": 2}
    assert [(row["value"], row["key"]) for row in read(engine, topic)] == [
        ("1", None),
        ("2", "k2"),
        ("3", None),
    ]


def test_tables_that_ask_no_registry_need_none(engine: Engine) -> None:
    topic = topic_of(engine, [Raw(b"x")])
    table = engine.target(topic, value=Source(format="string")).config
    job = replace(engine.job(table), registry=None)
    (target,) = openers_of(job, engine.lake, engine.cluster)
    engine.drain(target)
    assert read(engine, topic) == [{"value": "x"}]


def test_a_changed_value_and_a_changed_key_are_found(engine: Engine) -> None:
    topic = topic_of(engine, [Raw(b"%d" % n, b"%d" % n) for n in range(10)])
    value, key = Source(format="string"), Source(format="string")
    engine.drain(engine.target(topic, value=value, key=key))
    engine.sql("UPDATE {t} SET value = 'x' WHERE value = '3'", topic)
    engine.sql("UPDATE {t} SET key = 'x' WHERE key = '5'", topic)
    found = verified(engine, topic, value, key).findings
    assert sorted(each.columns for each in found) == [("key",), ("value",)]


@pytest.mark.full
def test_a_random_word_that_reads_as_a_number_is_a_name_all_the_same(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = bytes.fromhex("5785095e29102256")
    monkeypatch.setattr(batch, "os", SimpleNamespace(urandom=lambda _: number))
    test_every_record_is_its_row_or_a_dead_letter_with_its_reason(engine, CASES["bytes, plain JSON keys"])
