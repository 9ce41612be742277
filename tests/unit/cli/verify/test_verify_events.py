"""How `verify` reads Debezium's events and fills in what they lack."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import example, given
from hypothesis import strategies as st

from calve.decoding.formats import Top
from calve.schema.wire import NO_ID, Schema
from cli.verify.columns import row_hashes
from cli.verify.formats.decoding import Decoder, Values
from cli.verify.formats.fields import Unreadable
from cli.verify.keyed.upsert import Fold
from cli.verify.rows import Rows
from cli.verify.topic import Records
from tests.change_types import TIME
from tests.debezium import COLUMNS, connect_schema, envelope, event, json_schema

CHANGE = pa.struct(
    [
        ("op", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("position", pa.string()),
        ("deleted", pa.bool_()),
    ]
)
TABLE = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("note", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("_change", CHANGE),
    ]
)
ROW = {"id": 1, "name": "n", "note": None, "tags": ["t"]}
BLANK = 99


def written(found: dict[str, Any], encoding: str) -> tuple[Schema, bytes]:
    if encoding == "json":
        return Schema(7, json_schema(COLUMNS), "JSON"), json.dumps(found).encode()
    if encoding == "connect":
        text = connect_schema(COLUMNS)
        return Schema(NO_ID, text, "JSON"), json.dumps({"schema": None, "payload": found}).encode()
    return Schema(7, envelope(COLUMNS)), in_avro(envelope(COLUMNS), found)


def in_avro(schema: str, found: dict[str, Any]) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(schema)), found)
    return stream.getvalue()


def read(found: dict[str, Any], encoding: str, order: tuple[str, ...] = ("lsn",)) -> dict[str, Any]:
    schema, value = written(found, encoding)
    return dict(pa.record_batch(values_of(schema, order).project(value), TABLE).to_pylist()[0])


def values_of(schema: Schema, order: tuple[str, ...], columns: pa.Schema = TABLE) -> Values:
    return Values(columns, lambda _: None, Top(changes=True, order=order), only=schema)


encodings = pytest.mark.parametrize("encoding", ["avro", "json", "connect"])


@encodings
def test_a_row_is_what_the_event_says_of_it(encoding: str) -> None:
    found = read(event("u", before={**ROW, "id": 2}, after=ROW), encoding)
    change = found.pop("_change")
    assert found == ROW
    assert (change["op"], change["position"], change["deleted"]) == ("u", f"{17:020}", False)
    assert change["at"].timestamp() == 1_700_000_000.123


@encodings
def test_a_deleted_row_is_the_one_before(encoding: str) -> None:
    found = read(event("d", before=ROW, ts_us=1_700_000_000_123_456), encoding)
    assert found["_change"]["deleted"]
    assert found["_change"]["at"].microsecond == 123_456
    assert found["name"] == "n"
    assert read(event("d"), encoding)["id"] is None


@encodings
@pytest.mark.parametrize("found", [event("x", after=ROW), event("c"), event("u", before=ROW), event("r")])
def test_what_is_no_event_is_unreadable(encoding: str, found: dict[str, Any]) -> None:
    with pytest.raises(Unreadable, match="bad_change"):
        read(found, encoding)


@encodings
def test_without_a_position_there_is_none(encoding: str) -> None:
    assert read(event("c", after=ROW, lsn=None), encoding)["_change"]["position"] is None
    assert read(event("c", after=ROW), encoding, order=())["_change"]["position"] is None


@pytest.mark.parametrize("encoding", ["json", "connect"])
@pytest.mark.parametrize(
    "wrong", [{"source": {"ts_us": 7, "ts_ms": 1, "lsn": "1"}}, {"source": []}, {"before": 1}]
)
def test_an_event_that_is_not_of_its_schema_anywhere_is_malformed(
    encoding: str, wrong: dict[str, Any]
) -> None:
    with pytest.raises(Unreadable, match="malformed"):
        read(event("c", after=ROW) | wrong, encoding, order=())


def test_schemas_without_the_field_that_orders_changes_do_not_fit() -> None:
    with pytest.raises(Unreadable, match="incompatible_schema"):
        read(event("c", after=ROW), "avro", order=("scn",))


def test_a_text_that_is_no_moment_makes_only_its_own_record_malformed() -> None:
    zoned = {"type": "string", "connect.name": f"{TIME}ZonedTimestamp"}
    schema = Schema(0, envelope({"id": "long", "at": zoned}))
    texts = ["2024-01-01T00:00:00Z", "yesterday", "2024-01-02T00:00:00Z"]
    events = [event("c", after={"id": n, "at": text}) for n, text in enumerate(texts)]
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("_change", CHANGE)])
    values = values_of(schema, ("lsn",), columns)
    kafka = pa.field("_kafka", pa.struct([("offset", pa.int64())]))
    found = Decoder(columns.append(kafka), "t", values).rows(
        Records(
            partitions=[0] * 3,
            offsets=[0, 1, 2],
            timestamp_types=[0] * 3,
            timestamps_ms=[0] * 3,
            keys=[None] * 3,
            values=[in_avro(schema.text, each) for each in events],
            headers=[None] * 3,
        )
    )
    assert found.refused == [(1, "malformed")]
    assert [each.column("id").to_pylist() for each in found.batches] == [[0], [2]]


Place = tuple[int, int]
Record = tuple[int, int, bool, list[int], int | None]
"""Key, partition, whether it deletes, the hashes of two columns, order."""
records = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 1),
        st.booleans(),
        st.lists(st.sampled_from([1, 2, BLANK]), min_size=2, max_size=2),
        st.none() | st.integers(0, 4),
    ),
    max_size=25,
)


def one_by_one(found: list[Record], *, ordered: bool) -> dict[Place, tuple[list[int], bool]]:
    """By the place of the newest record of each key and partition: its columns, and whether any was filled in."""
    rows: dict[tuple[int, int], tuple[list[int], int, Place, bool]] = {}
    for offset, (key, partition, dead, columns, order) in enumerate(found):
        row = rows.get((key, partition))
        rank = -1 if order is None else order
        if dead:
            rows.pop((key, partition), None)
        elif row is None or not ordered or rank >= row[1]:
            before = row[0] if row else columns
            made = [old if new == BLANK else new for old, new in zip(before, columns, strict=True)]
            rows[key, partition] = made, rank, (partition, offset), made != columns
    return {place: (columns, changed) for columns, _, place, changed in rows.values()}


def rows_of(found: list[tuple[int, Record]], *, dead: bool, ordered: bool) -> Rows:
    chosen = [each for each in found if each[1][2] is dead]
    size = len(chosen)
    orders = pa.array([order for _, (*_, order) in chosen], pa.int64())
    return Rows(
        "f",
        pa.array([partition for _, (_, partition, *_) in chosen], pa.int32()),
        pa.array([offset for offset, _ in chosen], pa.int64()),
        [pa.array([columns[n] for _, (*_, columns, _) in chosen], pa.uint64()) for n in (0, 1)],
        pa.array([2 * key + partition for _, (key, partition, *_) in chosen], pa.uint64()),
        orders if ordered else pa.nulls(size),
        pa.array([0] * size, pa.timestamp("us", "UTC")),
        tombstones=dead,
    )


LESSER_ORDER = [(0, 0, False, [1, 1], 3), (0, 0, False, [2, 2], 1), (0, 0, False, [BLANK, BLANK], 4)]
DELETED = [(0, 0, False, [1, 1], 3), (0, 0, True, [2, 2], 4), (0, 0, False, [BLANK, 1], 5)]


@given(records, st.booleans())
@example(LESSER_ORDER, True)
@example(DELETED, True)
def test_values_that_are_lacking_are_those_of_the_row_before(found: list[Record], ordered: bool) -> None:
    fold = Fold((), ordered=ordered, blanks={0: BLANK, 1: BLANK})
    fold.add(rows_of(list(enumerate(found)), dead=dead, ordered=ordered) for dead in (False, True))
    wanted = one_by_one(found, ordered=ordered)
    assert fold.places() == wanted.keys()
    changed = {place: tuple(columns) for place, (columns, changed) in wanted.items() if changed}
    assert {place: each for place, each in fold.filled().items() if place in wanted} == changed
    hashes = {
        (row["partition"], row["offset"]): row["hash"] for each in fold.rows() for row in each.to_pylist()
    }
    for place, (columns, _) in wanted.items():
        [expected] = row_hashes([pa.array([each], pa.uint64()) for each in columns]).to_pylist()
        assert hashes[place] == expected
