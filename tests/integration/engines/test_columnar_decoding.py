"""Records decoded to columns are what Spark decodes them to as rows: the same are good, with the same values."""

from __future__ import annotations

import io
import json
import os
import re
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import replace
from random import Random, SystemRandom
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from calve.decoding.decode_plan import DecodePlan, decoding, first_columns
from calve.decoding.formats import FIELDS, Top
from calve.errors import CalveError
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import KAFKA, Json, field, struct
from calve.schema.wire import BARE, CONFLUENT, GLUE, Schema
from calve.schema.writers import PlainWriter
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.columns.expressions import OTHER, REFUSED, REJECT, SIZE
from glue_jobs.decode.decode import decode
from glue_jobs.engines.columnar.decoder import Decoder
from glue_jobs.engines.columnar.tasks import kafka_column
from glue_jobs.table.records import flattened
from tests import database_values, json_cases, random_json
from tests.avro_cases import AT, CASES, HISTORY, MANY, text
from tests.columnar import Headers, plain, records_of
from tests.integration.support.records.avro_records import nullable, record
from tests.random_avro import Schemas, Values, mutated, zigzag
from tests.random_formats import avro_schema
from tests.random_protobuf import Schemas as Messages
from tests.random_schemas import Steps
from tests.spark_decoder import decode as spark_decoder

pytestmark = pytest.mark.long

HEADERS = arrow_type(next(each["type"] for each in KAFKA["type"]["fields"] if each["name"] == "headers"))
NARROW, WIDE = record("R", a="int", b="string"), record("R", b="string", a="long", c=nullable("double"))
GOOD = zigzag(5) + text(b"x")
INFINITIES, TWICE = re.compile(rb'"(?:\+Infinity|[+-]?INF)"'), re.compile(rb'"([fd])":.*"\1":')


def same(
    spark: SparkSession,
    found: DecodePlan,
    columns: Json,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
) -> int:
    """Decode both ways and compare all of it; the number of good records."""
    records = records_of(values, keys, headers)
    decoded = Decoder(found, columns).decode(records)
    system = kafka_column("it", records, decoded.good, decoded.schema_id)
    frame = as_frame(spark, values, keys, headers)
    rows = as_rows(decode(frame, found), columns)
    by_spark = as_rows(spark_decoder.decode(frame, found, os.urandom(8)), columns)
    judged = [each for each in (SYSTEM_COLUMN, REJECT, SIZE, OTHER) if each in by_spark.column_names]
    for each in judged:
        assert plain(rows[each]) == plain(by_spark[each]), each
    kept = pc.is_null(by_spark[REJECT])
    for each in columns["fields"]:
        name = each["name"]
        assert plain(rows.filter(kept)[name]) == plain(by_spark.filter(kept)[name]), name
    judged = rows[REJECT].to_pylist()
    others = rows[OTHER].to_pylist() if OTHER in rows.column_names else [None] * len(judged)
    good = [
        n
        for n, (reject, other) in enumerate(zip(judged, others, strict=True))
        if reject is None and other is None
    ]
    differing = sorted(set(good) ^ set(decoded.good.tolist()))
    assert not differing, [(judged[n], (values[n] or b"").hex()) for n in differing[:3]]
    assert decoded.rejected.tolist() == [n for n, reject in enumerate(judged) if reject is not None]
    assert decoded.others == {place: others.count(place) for place in {*others} - {None}}
    taken = rows.take(pa.array(good, pa.int64()))
    for each in columns["fields"]:
        expected, got = plain(taken[each["name"]]), plain(decoded.columns[each["name"]])
        different = [n for n, (one, other) in enumerate(zip(expected, got, strict=True)) if one != other]
        assert not different, (each["type"], [(values[good[n]], expected[n], got[n]) for n in different[:2]])
    assert plain(system) == plain(taken[SYSTEM_COLUMN])
    return len(good)


def as_frame(
    spark: SparkSession,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
) -> DataFrame:
    """The records as the source delivers them."""
    size = len(values)
    listed = [
        [{"key": name.decode(), "value": value} for name, value in each] or None
        for each in headers or [[]] * size
    ]
    table = pa.table(
        {
            "topic": pa.array(["it"] * size),
            "partition": pa.array([3] * size, pa.int32()),
            "offset": pa.array(range(10, 10 + size), pa.int64()),
            "timestamp": pa.array(range(1_000_000, 1_000_000 + 1000 * size, 1000), pa.timestamp("us", "UTC")),
            "timestampType": pa.array([n % 2 for n in range(size)], pa.int32()),
            "key": pa.array(keys or [None] * size, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(listed, HEADERS),
            REFUSED: pa.nulls(size, pa.string()),
        }
    )
    return spark.createDataFrame(table)


def as_rows(decoded: DataFrame, columns: Json) -> Any:
    """The decoded records in their order."""
    rows = flattened(decoded, columns)
    return rows.orderBy(F.col(SYSTEM_COLUMN)["offset"]).toArrow()


def versions_of(*schemas: Json) -> list[Schema]:
    return [Schema(7 + n, json.dumps(each)) for n, each in enumerate(schemas)]


def test_values_that_readers_differ_about(spark: SparkSession) -> None:
    schemas = [record("R", **{f"f{n}": kind}) for n, (kind, _, _) in enumerate(CASES)]
    versions = versions_of(*schemas)
    columns = first_columns(versions, "it")
    values = [CONFLUENT.frame(7 + n) + each for n, (_, held, _) in enumerate(CASES) for each in held]
    good = same(spark, decoding(columns, versions), columns, values)
    assert good == sum(len(found) for _, _, found in CASES)


@pytest.mark.full
def test_as_many_items_as_may_be(spark: SparkSession) -> None:
    for kind, value, found in MANY:
        versions = versions_of(record("R", f=kind))
        columns = first_columns(versions, "it")
        assert same(spark, decoding(columns, versions), columns, [CONFLUENT.frame(7) + value]) == len(found)


def test_random_values_and_mutations_of_them(spark: SparkSession) -> None:
    for seed in range(4):
        random_values(spark, Random(seed), 1_000)


@pytest.mark.full
def test_many_random_values(spark: SparkSession) -> None:
    for _ in range(150):
        seed = SystemRandom().getrandbits(64)
        print(f"seed of the schema: {seed}")  # noqa: T201 shown where it fails
        random_values(spark, Random(seed), 2_000)


def random_values(spark: SparkSession, random: Random, count: int) -> None:
    while True:
        schema = Schemas(random).record()
        versions = versions_of(schema)
        try:
            columns = first_columns(versions, "it")
        except CalveError:
            continue
        found = decoding(columns, versions)
        if found.writers:
            break
    written = [CONFLUENT.frame(7) + Values(random).of(schema) for _ in range(count)]
    values = [each if random.random() < 0.3 else mutated(each, random) for each in written]
    assert same(spark, found, columns, values) > count / 5


def test_json_that_readers_differ_about(spark: SparkSession) -> None:
    versions = [Schema(7, json.dumps(json_cases.SCHEMA), "JSON")]
    values = [CONFLUENT.frame(7) + each.encode() for each in json_cases.PAYLOADS]
    for top, good in ((FIELDS, json_cases.GOOD), (Top(rest="rest"), json_cases.GOOD_WITH_REST)):
        columns = first_columns(versions, "it", top)
        assert same(spark, decoding(columns, versions, top=top), columns, values) == good


def test_values_of_databases(spark: SparkSession) -> None:
    """A key that is no timestamp is left out: Spark ends its task there.

    So is an infinity as Spark alone reads it, if another value of its name may follow: Spark does not see it then.
    """
    texts = [database_values.moment(random := Random(3)) for _ in range(400)]
    kinds = [
        AT,
        {"type": "map", "values": AT},
        {"type": "map", "values": HISTORY},
        {"type": "array", "items": HISTORY},
    ]
    versions = versions_of(*(record("R", **{f"f{n}": kind}) for n, kind in enumerate(kinds)))
    columns = first_columns(versions, "it")

    def written(kind: Json) -> bytes:
        if kind == AT:
            return text((random.choice(texts) if random.random() < 0.3 else "1970-01-01T00:00:00Z").encode())
        key = text(random.choice([b"a", b"b"])) if kind["type"] == "map" else b""
        key = zigzag(random.randrange(2)) if kind == HISTORY else key
        held = kind["values"] if kind["type"] == "map" else AT if kind == HISTORY else kind["items"]
        size = random.randint(1, 3)
        return zigzag(size) + b"".join(key + written(held) for _ in range(size)) + b"\x00"

    values = [CONFLUENT.frame(7) + text(each.encode()) for each in texts]
    values += [CONFLUENT.frame(7 + n) + written(kind) for n, kind in enumerate(kinds) for _ in range(300)]
    assert same(spark, decoding(columns, versions), columns, values) > 400
    found, columns = database_values.json_plan()
    values = [b'{"f":340282356779733661637539395458142568447}', *database_values.payloads()]
    values += [database_values.payload(random) for _ in range(2_000)]
    values = [each for each in values if not (INFINITIES.search(each) and TWICE.search(each))]
    assert same(spark, found, columns, values) > 500


def test_random_json(spark: SparkSession) -> None:
    assert sum(random_json_values(spark, Random(seed), 1_000) for seed in range(4)) > 4 * 1_000 / 20


@pytest.mark.full
def test_much_random_json(spark: SparkSession) -> None:
    good = 0
    for _ in range(150):
        seed = SystemRandom().getrandbits(64)
        print(f"seed of the schema: {seed}")  # noqa: T201 shown where it fails
        good += random_json_values(spark, Random(seed), 2_000)
    assert good > 150 * 2_000 / 20


def random_json_values(spark: SparkSession, random: Random, count: int) -> int:
    """Payloads of one schema: how many are good. Of some, a second one follows in the same object.

    Not with decimals: Spark does not see the kind of an earlier value of a name.
    """
    while True:
        schema, make = random_json.Schemas(random).top()
        top = random.choice([FIELDS, Top(rest="rest")])
        kept = random_json.partly(schema, random) if top.rest else schema
        versions = [Schema(7, json.dumps(kept), "JSON")]
        try:
            columns = first_columns(versions, "it", top)
        except CalveError:
            continue
        found = decoding(columns, versions, top=top)
        if found.writers:
            break
    values = [random_json.payload(make(), random) for _ in range(count)]
    for place in range(0, 0 if "decimal" in json.dumps(columns) else count - 1, 5):
        if values[place].endswith(b"}") and values[place + 1].startswith(b"{"):
            values[place] = values[place][:-1] + b"," + values[place + 1][1:]
    return same(spark, found, columns, [CONFLUENT.frame(7) + each for each in values])


def test_random_json_of_one_column_and_of_payloads(spark: SparkSession) -> None:
    scalar = {"type": "int32", "optional": True}
    row = {
        "type": "struct",
        "optional": False,
        "fields": [{"field": "f", "type": "string", "optional": True}],
    }
    for schema in (
        scalar,
        row,
        {"type": "integer"},
        {"type": "string"},
        {"type": "number"},
        json_cases.SCHEMA,
    ):
        versions = [Schema(0, json.dumps(schema), "JSON")]
        tops = [Top(), Top(rest="rest")] if schema.get("type") in ("struct", "object") else []
        for top in (Top(column="f"), *tops):
            columns = first_columns(versions, "it", top)
            found = decoding(columns, versions, wire=BARE, top=top)
            values = [each.encode() for each in (*json_cases.WHOLE, *json_cases.PAYLOADS)]
            assert same(spark, found, columns, values) > 1


def test_random_versions_in_one_chunk(spark: SparkSession) -> None:
    steps = Steps(Random(11))
    fields = [steps.first()]
    for _ in range(6):
        fields.append(steps.next(fields[-1]))
    versions = versions_of(*map(avro_schema, fields))
    columns = first_columns(versions, "it")
    values = []
    for _ in range(300):
        place = steps.random.randrange(len(fields))
        out = io.BytesIO()
        fastavro.schemaless_writer(
            out, fastavro.parse_schema(avro_schema(fields[place])), steps.row(fields[place])
        )
        values.append(CONFLUENT.frame(7 + place) + out.getvalue())
    found = decoding(columns, versions)
    assert len(found.writers) > 3
    assert same(spark, found, columns, values) > 200


def test_random_messages_of_several_versions_as_values_and_as_keys(spark: SparkSession) -> None:
    for seed in range(3):
        random_messages(spark, Random(seed), 800)


@pytest.mark.full
def test_many_random_messages(spark: SparkSession) -> None:
    for _ in range(100):
        seed = SystemRandom().getrandbits(64)
        print(f"seed of the schemas: {seed}")  # noqa: T201 shown where it fails
        random_messages(spark, Random(seed), 2_000)


def random_messages(spark: SparkSession, random: Random, count: int) -> None:
    """Values of two versions, the second with other fields; keys that are one column."""
    texts, writes = zip(*(Messages(random).top() for _ in range(2)), strict=True)
    versions = [Schema(7 + n, text, "PROTOBUF") for n, text in enumerate(texts)]
    whole, top = first_columns(versions[:1], "it", Top(column="key")), Top(column="key")
    try:
        columns = first_columns(versions, "it")
    except CalveError:
        columns = first_columns(versions[:1], "it")
    found = replace(decoding(columns, versions), key=decoding(whole, versions[:1], top=top))
    columns = struct(*columns["fields"], *whole["fields"])

    def written(place: int) -> bytes:
        payload: bytes = writes[place]()
        if random.random() < 0.4:
            payload = mutated(payload, random)
        return CONFLUENT.frame(7 + place) + random.choice([b"\x00"] * 9 + [b"\x02\x00"]) + payload

    values = [written(random.randrange(2)) for _ in range(count)]
    keys = [None if random.random() < 0.2 else written(0) for _ in range(count)]
    same(spark, found, columns, values, keys)


def test_frames_of_a_topic_of_several_tables(spark: SparkSession) -> None:
    [ours, *theirs] = versions_of(NARROW, WIDE, WIDE)
    columns = first_columns([ours], "it")
    frame, foreign = CONFLUENT.frame(7), [CONFLUENT.frame(each.id) for each in theirs]
    values = [
        frame + GOOD,
        None,
        b"",
        frame[:4],
        b"\x01" + frame[1:] + GOOD,
        *foreign,
        foreign[1] + GOOD,
        CONFLUENT.frame(10) + GOOD,
    ]
    values += [frame + GOOD + b"!", frame, frame + b"\x80", b"\x00" * 5, frame[1:] + GOOD]
    for shared in (True, False):
        found = decoding(columns, [ours], theirs, shared=shared)
        assert same(spark, found, columns, values * 2) == 2


def test_frames_of_glue_s_registry(spark: SparkSession) -> None:
    ids = [uuid.UUID(int=2**127 + n).int for n in range(2)]
    ours, theirs = (Schema(each, json.dumps(NARROW), version=3 + n) for n, each in enumerate(ids))
    columns = first_columns([ours], "it")
    values = []
    for frame in map(GLUE.frame, ids):
        packed = b"\x03\x05" + frame[2:]
        pieces = (GOOD, GOOD + b"!", b"")
        values += [frame + GOOD, packed + GOOD, packed, *(packed + zlib.compress(each) for each in pieces)]
    for shared in (True, False):
        found = decoding(columns, [ours], [theirs], wire=GLUE, shared=shared)
        assert same(spark, found, columns, values * 2, keys=values * 2) == 4


@pytest.mark.parametrize("is_text", [True, False])
def test_plain_values_with_keys_that_are_columns_and_headers(spark: SparkSession, *, is_text: bool) -> None:
    strange = [
        b"ok",
        None,
        b"",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xf0\x90\x80\x80",
        b"\xc1\xbf",
        "ž🧊".encode(),
        b"\xe2\x82",
    ]
    key = Schema(7, json.dumps({"type": "record", "name": "K", "fields": [{"name": "k", "type": "int"}]}))
    columns = struct(
        field("value", "string" if is_text else "binary"), field("k", "int"), field("more", "double")
    )
    keys = decoding(first_columns([key], "it"), [key])
    writers = (PlainWriter(0, b"", "value", is_text),)
    found = DecodePlan(writers, wire=BARE, key=keys, columns=struct(columns["fields"][0]))
    held = [
        (value, key)
        for value in strange
        for key in (None, b"", CONFLUENT.frame(7) + zigzag(9), CONFLUENT.frame(8), b"\x00" * 6)
    ]
    headers = [[(b"h", each[0]), (b"", b"1")] if n % 3 else [] for n, each in enumerate(held)]
    good = same(spark, found, columns, [value for value, _ in held], [key for _, key in held], headers)
    assert good == 2 * (5 if is_text else 9)
