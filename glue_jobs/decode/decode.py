"""Decode records to rows: one pass, no Python per record, and a reject reason for each bad record.

An Avro value is decoded with its frame and eight appended bytes. `calve.schema.avro_reader.framed` wraps the schemas in a
record (frame, value, end). `end` equals the appended bytes only if the payload has exactly the length of its schema.
If it is truncated, `from_avro` runs into the end and gives null. If it is too long, `end` holds other bytes.

A JSON value is parsed in its own projection, so that it is parsed once. `end` is set if `JsonValue` finds it good.
`glue_jobs.decode.protobuf` decodes all Protobuf values together, of any schema.
If a wire format compresses payloads, `value` and `key` are uncompressed, and `RAW` holds the received bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

from calve.config.job import PartName
from calve.decoding.decode_plan import DecodePlan
from calve.modes.mode import APPEND, Mode
from calve.schema.wire import GLUE
from calve.schema.writers import (
    AvroWriter,
    JsonWriter,
    PlainWriter,
    ProtobufWriter,
    WholeWriter,
    Writer,
)
from glue_jobs.columns.expressions import case
from glue_jobs.columns.helpers import DECODED, OTHER, RAW, REFUSED, REJECT, SCHEMA_ID, SIZE, TOMBSTONE
from glue_jobs.decode.change_events import is_bad, tombstones_and_idle, with_rows
from glue_jobs.decode.json_values import JsonValue
from glue_jobs.decode.protobuf.decoder import Frame, from_protobuf
from glue_jobs.decode.reject_reasons import (
    begins_with,
    begins_with_any,
    is_good,
    message,
    other,
    schema_id,
    verdict,
    verdict_on_key,
)
from glue_jobs.decode.shapes import shaped

NOTHING = "struct<value: struct<nothing: boolean>, end: binary>"


def decode(records: DataFrame, decoding: DecodePlan, end: bytes, mode: Mode = APPEND) -> DataFrame:
    """Add `decoded` (struct of `value` and `end`), `schema_id`, `REJECT` (a key of `REASONS`; null if good) and `SIZE`.

    Keeps every column and every record; records `REFUSED` by the source stay so.
    `end`: eight random bytes of this round, so that nobody can produce a record that ends in them.
    The size is that of key and value in bytes, as received. If the key is read, it is decoded in the same way.
    `OTHER`: for records of other tables, the index of their schema in `DecodePlan.other_ids`, at most `MAX_OTHERS`. They have
    no `REJECT`. `TOMBSTONE` marks records that delete. A record without a value is then no reject.
    For change events, `decoded` holds their rows, and `IDLE` marks events without a single row.
    """
    records = _plain(records, decoding)
    parsed: dict[str, Column] = {}
    decoded = {DECODED["value"]: _decoded(decoding, "value", end, parsed)}
    if decoding.key is not None:
        decoded[DECODED["key"]] = _decoded(decoding.key, "key", end, parsed)
    found = (records.withColumns(parsed) if parsed else records).withColumns(decoded)
    delivered = F.col(REFUSED).isNull()
    reject, ours = F.coalesce(F.col(REFUSED), verdict(decoding, end)), is_good(end) & delivered
    empty = F.col("value").isNull() & delivered
    marks: dict[str, Column] = {}
    if mode.reads_changes:
        found = with_rows(found, mode.source_order)
        reject = F.coalesce(reject, F.when(is_bad(found) & ~empty, F.lit("bad_change")))
        marks = tombstones_and_idle(found, deletes=mode.deletes, keep_deleted=mode.keep_deleted)
    elif mode.deletes:
        marks = {TOMBSTONE: empty}
    if marks:
        reject, ours = F.when(~empty, reject), ours | empty
    if decoding.key is not None:
        on_key = verdict_on_key(decoding.key, end)
        reject = F.coalesce(reject, F.when(ours, on_key) if decoding.others else on_key)
    size = [F.coalesce(F.length(raw(records, part)), F.lit(0)) for part in DECODED]
    judged = {
        SCHEMA_ID: schema_id(decoding),
        REJECT: reject,
        SIZE: reduce(Column.__add__, size).cast("long"),
    }
    if decoding.others:
        judged[OTHER] = F.when(~ours & delivered, other(decoding))
    return found.withColumns(judged | marks).drop(*parsed)


def raw(records: DataFrame, part: PartName) -> Column:
    """The value or the key, as received."""
    return F.col(RAW[part] if RAW[part] in records.columns else part)


def _decoded(decoding: DecodePlan, part: PartName, end: bytes, parsed: dict[str, Column]) -> Column:
    """The decoded value or key. Expressions that must be evaluated once go to `parsed`, under new names."""
    branches = [
        (_is_ours(writer, part), _read(writer, F.col(part), end, parsed))
        for writer in decoding.writers
        if message(writer) is None
    ]
    branches += _messages(decoding.writers, part, end, parsed)
    return case(branches, F.lit(None)) if branches else F.lit(None).cast(NOTHING)


def _is_ours(writer: Writer, part: PartName) -> Column:
    return F.lit(True) if isinstance(writer, PlainWriter) else begins_with(writer.prefix, part)  # noqa: FBT003 a literal column


def _read(writer: Writer, bytes_: Column, end: bytes, parsed: dict[str, Column]) -> Column:
    """A struct of `value` (a struct of columns) and `end`, which is set if the bytes are good."""
    match writer:
        case AvroWriter():
            return _from_avro(F.concat(bytes_, F.lit(bytearray(end))), writer, end)
        case JsonWriter():
            return _from_json(bytes_, writer, end, parsed)
        case PlainWriter():
            return _kept(bytes_, writer, end)
        case WholeWriter():
            inner = _read(writer.inner, bytes_, end, parsed)
            return F.struct(
                F.struct(inner["value"].alias(writer.column)).alias("value"),
                inner["end"].alias("end"),
            )
        case ProtobufWriter():
            raise AssertionError("messages are read together, by `_messages`")


def _from_avro(framed: Column, writer: AvroWriter, end: bytes) -> Column:
    decoded = from_avro(framed, writer.schema, {"mode": "PERMISSIVE", "avroSchema": writer.reader})
    return decoded if writer.shape is None else shaped(decoded, writer.shape, end)


def _from_json(bytes_: Column, writer: JsonWriter, end: bytes, parsed: dict[str, Column]) -> Column:
    payload = F.substring(bytes_, len(writer.prefix) + 1, 2**31 - 1)
    word = f"w{end.hex()}"  # Spark parses it as a name in places: digits alone would be a number
    json = JsonValue(payload, writer.shape, word, writer.scalar, writer.rest, writer.member)
    name = f"calve:json:{len(parsed)}"
    parsed[name] = F.when(begins_with(writer.prefix, bytes_), json.parsed())
    return F.struct(
        json.row(F.col(name), writer.table).alias("value"),
        F.when(json.is_good(F.col(name)), F.lit(bytearray(end))).alias("end"),
    )


def _messages(
    writers: Iterable[Writer], part: PartName, end: bytes, parsed: dict[str, Column]
) -> list[tuple[Column, Column]]:
    """One branch for all Protobuf messages: they are decoded together."""
    messages = [inner for writer in writers if (inner := message(writer)) is not None]
    if not messages:
        return []
    ours, name = begins_with_any([each.prefix for each in messages], part), f"calve:protobuf:{len(parsed)}"
    frames = [Frame(each.prefix, each.plan) for each in messages]
    parsed[name] = from_protobuf(F.when(ours, F.col(part)), frames)
    value, good = F.col(name)["value"], F.when(F.col(name)["good"], F.lit(bytearray(end)))
    for whole in (each.column for each in writers if isinstance(each, WholeWriter)):
        value = F.struct(value.alias(whole))
        break
    return [(ours, F.struct(value.alias("value"), good.alias("end")))]


def _kept(bytes_: Column, writer: PlainWriter, end: bytes) -> Column:
    """The unchanged bytes; null is a value, too."""
    found = F.lit(bytearray(end))
    if not writer.text:
        return F.struct(F.struct(bytes_.alias(writer.column)).alias("value"), found.alias("end"))
    text = bytes_.cast("string")
    good = F.when(bytes_.isNull() | F.is_valid_utf8(text), found)
    return F.struct(F.struct(text.alias(writer.column)).alias("value"), good.alias("end"))


def _plain(records: DataFrame, decoding: DecodePlan) -> DataFrame:
    """The records with uncompressed values and keys. Bytes that cannot be inflated stay unchanged."""
    parts: tuple[tuple[PartName, DecodePlan | None], ...] = (("value", decoding), ("key", decoding.key))
    for part, each in parts:
        if each is not None and each.wire.deflated is not None:
            inflated = inflate(F.when(begins_with(each.wire.deflated, part), F.col(part)))
            records = records.withColumns({RAW[part]: F.col(part), part: F.coalesce(inflated, part)})
    return records


CHUNK_BYTES = 16 * 2**20


def inflated(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """The uncompressed values; null if they cannot be inflated.

    Output chunks are limited, whatever the batches hold: `CHUNK_BYTES` and one more value.
    """
    for batch in batches:
        chunk: list[bytes | None] = []
        size = 0
        for each in batch:
            value = each.as_py()
            found = None if value is None else GLUE.plain(value)
            chunk.append(found)
            size += len(found or b"")
            if size >= CHUNK_BYTES:
                yield pa.array(chunk, pa.binary())
                chunk, size = [], 0
        if chunk:
            yield pa.array(chunk, pa.binary())


inflate: Callable[[Column], Column] = arrow_udf(inflated, BinaryType())  # type: ignore[call-overload]
