import json
import random
from dataclasses import replace
from decimal import Decimal
from io import BytesIO

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from calve.schema.columns import REASONS
from calve.schema.wire import Schema
from calve.table.position import Ledger, Position, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import encode, root
from cli.verify.claim import chain_problems, ledger_problems, rounds_of
from cli.verify.columns import RANGE, Digests, Place, column_hashes, row_hashes, within
from cli.verify.findings import Check, Finding, Verification, ranges
from cli.verify.formats.decoding import Decoder, Values
from cli.verify.topic import Records

TOPIC = TopicKey("cluster", "topic-1")
KAFKA = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def hashes(values, kind):
    return column_hashes([pa.array(values, kind)])[0].to_pylist()


NESTED = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.map_(pa.string(), pa.float64()))])
DIFFERENT = [
    (pa.int32(), [0, 1, -1, None]),
    (pa.int64(), [0, 1, 2**62, -(2**63), None]),
    (pa.bool_(), [True, False, None]),
    (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf"), None]),
    (pa.float32(), [0.0, 1.5, float("nan"), None]),
    (pa.string(), ["", "a", "b", "ab", None]),
    (pa.large_binary(), [b"", b"\0", b"\0\0", None]),
    (pa.binary(2), [b"ab", b"ba", None]),
    (pa.decimal128(38, 2), [Decimal("1.00"), Decimal("-1.00"), Decimal("1.01"), None]),
    (pa.timestamp("us", "UTC"), [0, 1, -1, None]),
    (pa.date32(), [0, 1, None]),
    (pa.list_(pa.int32()), [[], [1], [None], [1, 2], [2, 1], None]),
    (pa.list_(pa.string()), [["a", "bc"], ["ab", "c"], ["abc"]]),
    (pa.map_(pa.string(), pa.int32()), [[], [("a", 1)], [("a", None)], [("a", 1), ("b", 2)], None]),
    (NESTED, [{"a": [1], "b": []}, {"a": [], "b": []}, {"a": None, "b": None}, None]),
]


@pytest.mark.parametrize(("kind", "values"), DIFFERENT)
def test_different_values_have_different_hashes(kind, values):
    assert len(set(hashes(values, kind))) == len(values)


@pytest.mark.parametrize(("kind", "values"), DIFFERENT)
def test_a_value_has_the_same_hash_wherever_it_stands(kind, values):
    straight = hashes(values, kind)
    assert hashes(values[::-1], kind) == straight[::-1]
    sliced = column_hashes([pa.array([None, *values, None], kind).slice(1, len(values))])[0]
    assert sliced.to_pylist() == straight


def test_encodings_of_the_same_text_have_the_same_hash():
    assert hashes(["a", "b", "a"], pa.string()) == hashes(["a", "b", "a"], pa.large_string())


def test_the_entries_of_a_map_have_no_order():
    kind = pa.map_(pa.string(), pa.int32())
    one, other = hashes([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], kind)
    assert one == other


@pytest.mark.parametrize("kind", [pa.list_(NESTED), pa.map_(pa.int32(), NESTED), pa.large_list(NESTED)])
def test_a_list_of_structs_that_is_null_is_an_empty_one_as_its_reader_has_it(kind):
    null, empty, other = hashes([None, [], [{"a": None}] if not pa.types.is_map(kind) else [(1, None)]], kind)
    assert null == empty != other


def test_exchanged_columns_change_the_hash_of_a_row():
    straight = row_hashes(column_hashes([pa.array([1]), pa.array([2])]))
    exchanged = row_hashes(column_hashes([pa.array([2]), pa.array([1])]))
    assert straight != exchanged


def digests(rows):
    found = Digests()
    partitions, offsets, values = (list(column) for column in zip(*rows, strict=True))
    found.add(pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64()), pa.array(values, pa.uint64()))
    return found


ROWS = [(p, offset, (offset * 2654435761 + p) % 2**64) for p in range(2) for offset in range(3 * RANGE)]


def test_digests_do_not_depend_on_order():
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    assert digests(ROWS).differing(digests(shuffled)) == []


@pytest.mark.parametrize(
    "tamper",
    [lambda rows: rows[1:], lambda rows: [*rows, rows[0]], lambda rows: [(0, 0, 99), *rows[1:]]],
    ids=["removed", "doubled", "altered"],
)
def test_a_digest_tells_where_a_row_was_touched(tamper):
    assert digests(ROWS).differing(digests(tamper(ROWS))) == [Place(0, 0)]


def test_a_place_is_within_the_span_of_its_partition():
    partitions = pa.array([0, 0, 0, 0, 1, 2, None, 0], pa.int32())
    offsets = pa.array([2, 3, 4, 5, 7, 4, 4, None], pa.int64())
    inside = within(partitions, offsets, {0: (3, 5), 1: (7, 8)}).to_pylist()
    assert inside == [False, True, True, False, True, False, False, False]
    assert within(partitions, offsets, {}).to_pylist() == [False] * 8


def test_ranges_put_neighbours_together():
    assert list(ranges([1, 2, 3, 7, 9, 10])) == [(1, 4), (7, 8), (9, 11)]
    assert list(ranges([])) == []


def record(*fields, name="r"):
    return {"type": "record", "name": name, "fields": [{"name": name, "type": kind} for name, kind in fields]}


def frame(schema_id, schema, row):
    value = BytesIO()
    value.write(b"\0" + schema_id.to_bytes(4, "big"))
    schemaless_writer(value, parse_schema(schema), row)
    return value.getvalue()


def records(*values):
    size = len(values)
    return Records(
        [0] * size, list(range(size)), [0] * size, [0] * size, [None] * size, list(values), [None] * size
    )


def decoder(columns, **schemas):
    """A decoder for a registry that holds the schema `s1` under id 1, and so on."""
    by_id = {int(name[1:]): Schema(int(name[1:]), json.dumps(schema)) for name, schema in schemas.items()}
    values = Values(pa.schema(columns), by_id.get)
    return Decoder(pa.schema([*columns, ("_kafka", KAFKA)]), "t", values)


EITHER = pa.struct([("int", pa.int32()), ("long", pa.int64())])
SAMPLES = [
    ("int", pa.int64(), 7, 7),
    ("float", pa.float64(), 1.5, 1.5),
    ({"type": "int", "logicalType": "date"}, pa.date32(), 19_000, 19_000),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC"), 5, 5_000),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), 5, 5),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us"), -5, -5_000),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, pa.string(), "B", "B"),
    ({"type": "fixed", "name": "f", "size": 2}, pa.binary(2), b"ab", b"ab"),
    (["null", "string"], pa.string(), None, None),
    (["string", "null"], pa.string(), "x", "x"),
    ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int64()), [1, None], [1, None]),
    ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), {"k": 1}, [("k", 1)]),
    (
        {"type": "array", "items": record(("key", "int"), ("value", ["null", "long"]), name="MapEntry")},
        pa.map_(pa.int32(), pa.int64()),
        [{"key": 1, "value": 2}, {"key": 3, "value": None}, {"key": 1, "value": 4}],
        [(1, 4), (3, None)],
    ),
    (["null", "int", "long"], EITHER, ("long", 7), {"int": None, "long": 7}),
    (["null", "int", "long"], EITHER, None, None),
    ({"type": "array", "items": ["int", "long"]}, pa.list_(EITHER), [("int", 7)], [{"int": 7, "long": None}]),
    (
        {
            "type": "record",
            "name": "n",
            "fields": [{"name": "d", "type": {"type": "int", "logicalType": "date"}}],
        },
        pa.struct([("d", pa.date32()), ("later", pa.string())]),
        {"d": 1},
        {"d": 1},
    ),
]


@pytest.mark.parametrize(("avro", "kind", "written", "expected"), SAMPLES)
def test_avro_values_become_column_values(avro, kind, written, expected):
    schema = record(("x", avro))
    plain = json.loads(json.dumps(schema).replace('"logicalType"', '"was"'))
    [batch], refused = decoder([("x", kind)], s1=schema).rows(records(frame(1, plain, {"x": written})))
    assert refused == []
    assert batch.column("x").equals(pa.array([expected], kind))


def test_a_decimal_of_38_digits_keeps_all_of_them():
    schema = record(("x", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 6}))
    unscaled = int("12345678901234567890123456789012345678")
    plain = record(("x", "bytes"))
    value = frame(1, plain, {"x": unscaled.to_bytes(16, "big", signed=True)})
    [batch], _ = decoder([("x", pa.decimal128(38, 6))], s1=schema).rows(records(value))
    assert str(batch.column("x")[0].as_py()).replace(".", "") == str(unscaled)


def test_a_column_that_the_writer_lacks_is_null_and_a_field_that_the_table_lacks_is_left_out():
    schema = record(("x", "int"), ("extra", "string"))
    columns = [("x", pa.int32()), ("venue", pa.string())]
    [batch], _ = decoder(columns, s1=schema).rows(records(frame(1, schema, {"x": 1, "extra": "e"})))
    assert batch.column("venue").null_count == 1
    assert batch.schema.names == ["x", "venue", "_kafka"]


def renaming(name, *aliases):
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": name, "aliases": list(aliases), "type": "int"}],
    }


A, B, C, BOTH = renaming("a"), renaming("b", "a"), renaming("c", "b"), record(("a", "int"), ("b", "int"))
WITHIN = [record(("in", each | {"name": "i"})) for each in (A, B)]


@pytest.mark.parametrize(
    ("versions", "columns", "writer", "found"),
    [
        ([A, B], ["b"], 0, {"b": 1}),
        ([A, B], ["b"], 1, {"b": 1}),
        ([A, B], ["a"], 0, {"a": 1}),
        ([A, B, C], ["c"], 0, {"c": 1}),
        ([B, A], ["b"], 1, {"b": 1}),
        ([A, BOTH, B], ["a", "b"], 0, {"a": 1, "b": None}),
        ([A, B, BOTH], ["b", "a"], 0, {"a": None, "b": 1}),
        ([A, B, BOTH], ["b", "a"], 2, {"a": 1, "b": 2}),
        (WITHIN, ["in.b"], 0, {"in": {"b": 1}}),
    ],
)
def test_an_earlier_name_is_the_column_that_later_versions_made_of_it(versions, columns, writer, found):
    names = [name.split(".") for name in columns]
    table = [
        (top, pa.struct([(each, pa.int32()) for each in inner]) if inner else pa.int32())
        for top, *inner in names
    ]
    known = [Schema(n, json.dumps(each)) for n, each in enumerate(versions, 1)]
    values = Values(pa.schema(table), {each.id: each for each in known}.get, versions=known)
    row = {each["name"]: n for n, each in enumerate(versions[writer]["fields"], 1)}
    value = {"in": {"a": 1}} if versions is WITHIN else row
    arrays = values.project(frame(writer + 1, versions[writer], value))
    assert pa.record_batch(arrays, pa.schema(table)).to_pylist() == [found]


def test_several_schema_ids_in_one_chunk_are_told_apart():
    old, new = record(("x", "int")), record(("x", "long"), ("y", "int"))
    values = [frame(1, old, {"x": 1}), frame(2, new, {"x": 2, "y": 3}), frame(1, old, {"x": 4})]
    batches, _ = decoder([("x", pa.int64()), ("y", pa.int32())], s1=old, s2=new).rows(records(*values))
    found = {(r["_kafka"]["offset"], r["x"], r["y"]) for batch in batches for r in batch.to_pylist()}
    assert found == {(0, 1, None), (1, 2, 3), (2, 4, None)}


GOOD = frame(1, record(("x", "string")), {"x": "hello"})
BAD = [
    (None, "null_value"),
    (b"", "truncated"),
    (b"\0\0\0\1", "truncated"),
    (b"{" + GOOD[1:], "bad_magic"),
    (b"\0\0\0\0\x09" + GOOD[5:], "unknown_schema_id"),
    (GOOD[:-1], "malformed"),
    (GOOD[:5] + b"\x80\xcc\xfd\x93\x0e", "malformed"),
    (GOOD + b"x", "trailing_bytes"),
    (b"\0\0\0\0\2" + GOOD[5:], "incompatible_schema"),
]


@pytest.mark.parametrize(("value", "reason"), BAD)
def test_a_record_that_is_no_row_has_the_reason_that_the_engine_uses(value, reason):
    reader = decoder([("x", pa.string())], s1=record(("x", "string")), s2=record(("x", "boolean")))
    batches, refused = reader.rows(records(GOOD, value))
    assert refused == [(1, reason)]
    assert sum(batch.num_rows for batch in batches) == 1
    assert reader.values.verdict(value) == reason
    assert reason in REASONS


def test_one_value_beyond_its_column_does_not_spoil_the_others():
    wide = record(("x", "long"))
    values = [frame(1, wide, {"x": 1}), frame(1, wide, {"x": 2**40}), frame(1, wide, {"x": 3})]
    reader = decoder([("x", pa.int32())], s1=record(("x", "int")))
    batches, refused = reader.rows(records(*values))
    assert refused == [(1, "malformed")]
    assert [reader.values.verdict(value) for value in values] == [None, "malformed", None]
    assert sum(batch.num_rows for batch in batches) == 2


def commit(number, start, to, *, ledger=None, round_id=None, carried=False):
    span = sum(end - start.get(p, end) for p, end in to.items())
    ledger = ledger or Ledger(span=span, consumed=span, applied=span, rows_appended=span)
    position = Position({TOPIC: to}, round_id or f"r{number}", "w", "t")
    summary = encode(position=position, topic=TOPIC, start={TOPIC: start}, ledger=ledger, metrics={})
    return Commit(number, number - 1, {} if carried else summary)


BIRTH = Commit(0, None, root(writer="w", topic="t", round_id="r0"))


def history(*commits):
    return [*reversed(commits), BIRTH]


def test_rounds_that_follow_each_other_are_no_finding():
    commits = history(
        commit(1, {0: 0}, {0: 5}), commit(2, {}, {}, carried=True), commit(3, {0: 5, 1: 0}, {0: 9, 1: 2})
    )
    assert chain_problems(commits) == []
    assert [each.snapshot for each in rounds_of(commits)] == [3, 1]
    assert [problem for each in rounds_of(commits) for problem in ledger_problems(each)] == []


def test_a_position_that_maintenance_carries_forward_is_no_round():
    first = commit(1, {0: 0}, {0: 5})
    commits = history(first, replace(first, id=2, parent=1))
    assert [each.snapshot for each in rounds_of(commits)] == [1]
    assert chain_problems(commits) == []


@pytest.mark.parametrize(
    ("start", "to"), [({0: 6}, {0: 9}), ({0: 4}, {0: 9}), ({0: 5}, {0: 3}), ({}, {0: 9}), ({0: 5}, {})]
)
def test_a_round_that_does_not_begin_where_the_last_one_ended_is_found(start, to):
    [finding] = chain_problems(history(commit(1, {0: 0}, {0: 5}), commit(2, start, to)))
    assert finding.partition == 0
    assert "snapshot 2" in finding.message


@pytest.mark.parametrize(
    ("ledger", "complaint"),
    [
        (Ledger(span=5, consumed=5, applied=4), "does not balance"),
        (Ledger(span=4, consumed=4, applied=4), "explains 4 offsets of 5"),
    ],
)
def test_a_ledger_that_does_not_add_up_is_found(ledger, complaint):
    [each] = rounds_of(history(commit(1, {0: 0}, {0: 5}, ledger=ledger)))
    assert any(complaint in problem.message for problem in ledger_problems(each))


def test_a_finding_names_its_place_with_inclusive_offsets():
    assert Finding("coverage", "gone", 3, ((5, 6), (8, 12))).where == "partition 3 offset 5, 8-11"
    assert Finding("ledgers", "wrong").where == ""


def test_what_was_not_proved_is_not_complete():
    proved, open_ = Check("coverage", "proved"), Check("expired", "not verifiable")
    assert Verification("t", "t", (proved,), ()).complete
    assert not Verification("t", "t", (proved, open_), ()).complete
    assert not Verification("t", "t", (proved,), (Finding("coverage", "gone"),)).ok
