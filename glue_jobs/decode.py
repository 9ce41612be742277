"""Records to rows: one pass, no Python per record, and a verdict for each record.

An Avro value is decoded together with its frame and eight bytes appended to it: the schemas are wrapped in a record
(frame, value, end) by `calve.avro_reader.framed`. `end` comes out as the appended bytes only where the payload was exactly as
long as its schema says. Cut short, the decoder runs into the end and `from_avro` gives null; longer, `end` holds left-over bytes.

A JSON value is parsed in a projection of its own, so that it is parsed once; `end` is there where `JsonValue` finds it good. All
Protobuf values are decoded together, whichever schema wrote them, by `glue_jobs.protobuf`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from calve.columns import REASONS, REDRIVEN
from calve.decoding import AvroWriter, Decoding, JsonWriter, ProtobufWriter
from calve.errors import Fatal
from calve.names import SYSTEM_COLUMN
from calve.position import TopicKey
from calve.wire import Wire
from glue_jobs.json_values import JsonValue
from glue_jobs.shapes import shaped

DECODED = "decoded"
REJECT = "calve:reject"
SIZE = "calve:size"
"""They stand beside the data columns: no field can have a name with a colon (`calve.names`)."""
SCHEMA_ID = "schema_id"
PROTOBUF = "calve:protobuf"
NOTHING = "struct<value: struct<nothing: boolean>, end: binary>"


def decode(records: DataFrame, decoding: Decoding, end: bytes) -> DataFrame:
    """Add `decoded` (struct of `value` and `end`), `schema_id`, `REJECT` (a word of `REASONS`, null: a good record) and `SIZE`.

    Keeps every column and every record of Spark's Kafka source. `end`: eight random bytes of this round, so that no
    record can be made to end in them. The size is that of key and value in bytes.
    """
    framed = F.concat("value", F.lit(bytearray(end)))
    parsed: dict[str, Column] = {}
    branches = []
    for writer in decoding.writers:
        ours = _begins_with(writer.prefix)
        match writer:
            case AvroWriter():
                branches.append((ours, _from_avro(framed, writer)))
            case JsonWriter():
                payload = F.substring("value", len(writer.prefix) + 1, 2**31 - 1)
                json, name = JsonValue(payload, writer.shape, end.hex()), f"calve:json:{writer.id}"
                parsed[name] = F.when(ours, json.parsed())
                branches.append((ours, _from_json(json, F.col(name), writer, end)))
    if protobuf := [each for each in decoding.writers if isinstance(each, ProtobufWriter)]:
        ours = _begins_with_any([each.prefix for each in protobuf])
        parsed[PROTOBUF] = _protobuf(F.when(ours, F.col("value")), protobuf)
        branches.append((ours, _from_protobuf(F.col(PROTOBUF), end)))
    decoded = _case(branches, F.lit(None)) if branches else F.lit(None).cast(NOTHING)
    size = F.coalesce(F.length("value"), F.lit(0)) + F.coalesce(F.length("key"), F.lit(0))
    found = (records.withColumns(parsed) if parsed else records).withColumn(DECODED, decoded)
    judged = found.withColumns(
        {SCHEMA_ID: _schema_id(decoding), REJECT: _verdict(decoding, end), SIZE: size.cast("long")}
    )
    return judged.drop(*parsed) if parsed else judged


def flattened(decoded: DataFrame, columns: list[str]) -> DataFrame:
    """The columns of a table row, `_kafka` last, with reject and size: what counting needs and nothing more.

    Raw values end here: whatever passes an observation is copied, and a value is the widest column there is.
    """
    fields = decoded.schema[DECODED].dataType["value"].dataType.names  # type: ignore[index]
    data = (F.col(DECODED)["value"][name] if name in fields else F.lit(None) for name in columns)
    named = (column.alias(name) for column, name in zip(data, columns, strict=True))
    return decoded.select(*named, _kafka().alias(SYSTEM_COLUMN), REJECT, SIZE)


def rows(flat: DataFrame) -> DataFrame:
    """The good records as table rows."""
    return flat.where(F.col(REJECT).isNull()).drop(REJECT, SIZE)


def rejected(decoded: DataFrame, *, topic: TopicKey, round_id: str) -> DataFrame:
    """The rejected records as rows of the dead-letter table, in its column order."""
    reasons = F.create_map(*(F.lit(text) for pair in REASONS.items() for text in pair))
    return decoded.where(F.col(REJECT).isNotNull()).select(
        F.lit(topic.cluster_id).alias("cluster_id"),
        F.lit(topic.topic_id).alias("topic_id"),
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        "headers",
        F.col(SCHEMA_ID).alias("schema_id"),
        F.lit("decode").alias("stage"),
        F.col(REJECT).alias("reason"),
        reasons[F.col(REJECT)].alias("message"),
        F.lit(1).alias("attempt"),
        F.lit(round_id).alias("round"),
        F.current_timestamp().alias("rejected_at"),
        F.lit(None).cast("string").alias(REDRIVEN),
    )


def _kafka() -> Column:
    return F.struct(
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "headers",
        SCHEMA_ID,
    )


def _begins_with(prefix: bytes) -> Column:
    """Compares bytes, since a number would cost a string per record."""
    return F.substring("value", 1, len(prefix)) == F.lit(bytearray(prefix))


def _from_avro(framed: Column, writer: AvroWriter) -> Column:
    decoded = from_avro(framed, writer.schema, {"mode": "PERMISSIVE", "avroSchema": writer.reader})
    if writer.shape is None:
        return decoded
    return shaped(decoded, {"struct": [["value", writer.shape, None], ["end", None, None]]})


def _from_json(json: JsonValue, parsed: Column, writer: JsonWriter, end: bytes) -> Column:
    return F.struct(
        json.row(parsed, writer.table).alias("value"),
        F.when(json.is_good(parsed), F.lit(bytearray(end))).alias("end"),
    )


def _protobuf(values: Column, writers: list[ProtobufWriter]) -> Column:
    """A struct of `value` and `good`. Raises Fatal where Python's parts for it are missing, which other formats do not need."""
    try:
        from glue_jobs.protobuf.column import from_protobuf
        from glue_jobs.protobuf.decoder import Frame
    except ImportError as error:
        raise Fatal(
            f"Protobuf topics need {error.name} in the job's Python",
            fix="run on a Glue release that brings it",
        ) from error
    return from_protobuf(values, [Frame(each.prefix, each.plan) for each in writers])


def _from_protobuf(parsed: Column, end: bytes) -> Column:
    good = F.when(parsed["good"], F.lit(bytearray(end)))
    return F.struct(parsed["value"].alias("value"), good.alias("end"))


def _schema_id(decoding: Decoding) -> Column:
    """The registry id in the frame, null where there is no frame."""
    known = [(_begins_with(decoding.wire.frame(each)), F.lit(each)) for each in sorted(decoding.ids)]
    number = framed_number(decoding.wire).cast("int")
    return _case([*known, (is_framed(decoding.wire), number)], F.lit(None).cast("int"))


def is_framed(wire: Wire) -> Column:
    return (F.length("value") >= wire.size) & _begins_with(wire.magic)


def framed_number(wire: Wire) -> Column:
    """The id in a frame, as a long."""
    number = F.substring("value", len(wire.magic) + 1, wire.size - len(wire.magic))
    return F.conv(F.hex(number), 16, 10).cast("long")


def _verdict(decoding: Decoding, end: bytes) -> Column:
    """Why the record is no row; the good case is tested first, since nearly every record is good."""
    wire, found = decoding.wire, F.col(DECODED)["end"]
    return _case(
        [
            (found == F.lit(bytearray(end)), F.lit(None).cast("string")),
            (F.col("value").isNull(), F.lit("null_value")),
            (F.length("value") < wire.size, F.lit("truncated")),
            (~_begins_with(wire.magic), F.lit("bad_magic")),
            (_any_id(wire, decoding.incompatible), F.lit("incompatible_schema")),
            (_begins_with_any(_other_messages(decoding)), F.lit("incompatible_schema")),
            (~_any_id(wire, {writer.id for writer in decoding.writers}), F.lit("unknown_schema_id")),
            (found.isNull(), F.lit("malformed")),
        ],
        F.lit("trailing_bytes"),
    )


def _any_id(wire: Wire, ids: Iterable[int]) -> Column:
    return _begins_with_any([wire.frame(each) for each in sorted(ids)])


def _begins_with_any(prefixes: Iterable[bytes]) -> Column:
    return reduce(lambda a, b: a | b, map(_begins_with, prefixes), F.lit(False))  # noqa: FBT003 a literal column


def _other_messages(decoding: Decoding) -> list[bytes]:
    """The beginnings of values that are other messages of a known schema than the table's."""
    return [
        each for writer in decoding.writers if isinstance(writer, ProtobufWriter) for each in writer.others
    ]


def _case(branches: list[tuple[Column, Column]], otherwise: Column) -> Column:
    first, *rest = branches
    return reduce(lambda case, branch: case.when(*branch), rest, F.when(*first)).otherwise(otherwise)
