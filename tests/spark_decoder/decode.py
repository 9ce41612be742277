"""Decode records to rows: one pass, no Python per record, and a reject reason for each bad record.

An Avro value is decoded with its frame and eight appended bytes. `tests.spark_decoder.resolution.framed` wraps the schemas in a
record (frame, value, end). `end` equals the appended bytes only if the payload has exactly the length of its schema.
If it is truncated, `from_avro` runs into the end and gives null. If it is too long, `end` holds other bytes.

A JSON value is parsed in its own projection, so that it is parsed once. `end` is set if `JsonValue` finds it good.
`glue_jobs.decode.protobuf` decodes all Protobuf values together, of any schema.
If a wire format compresses payloads, `value` and `key` are uncompressed, and `RAW` holds the received bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

from calve.config.job import PartName
from calve.decoding.decode_plan import MAX_OTHERS, DecodePlan
from calve.modes.mode import APPEND, Mode
from calve.schema.columns import field, struct
from calve.schema.wire import GLUE, Wire
from calve.schema.writers import AvroWriter, JsonWriter, PlainWriter, ProtobufWriter
from glue_jobs.columns.expressions import (
    DECODED,
    OTHER,
    REFUSED,
    REJECT,
    SCHEMA_ID,
    SIZE,
    TOMBSTONE,
    case,
    false,
    spark_type,
)
from tests.numpy_protobuf import decoder as numpy_protobuf
from tests.spark_decoder.change_events import is_bad, tombstones_and_idle, with_rows
from tests.spark_decoder.json_values import JsonValue
from tests.spark_decoder.resolution import framed, resolved
from tests.spark_decoder.shapes import shaped

RAW: dict[PartName, str] = {"value": "calve:raw", "key": "calve:raw_key"}


def from_protobuf(value: Column, writers: Sequence[ProtobufWriter]) -> Column:
    """A struct of `value` (the row) and `good` per framed value, null for others: of the decoder in numpy."""

    def decoded(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for each in batches:
            yield numpy_protobuf.decode(each, writers)

    columns = struct(*(field(each.name, each.type) for each in writers[0].plan.columns))
    made: Any = arrow_udf(decoded, f"struct<value: {spark_type(columns)}, good: boolean>")  # type: ignore[call-overload]
    return made.asNondeterministic()(value)  # type: ignore[no-any-return]


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
    """The decoded value or key, as `_judged`. Expressions that must be evaluated once go to `parsed`, under new names."""
    bytes_, branches = F.col(part), []
    for writer in decoding.writers:
        match writer:
            case AvroWriter():
                branches.append((begins_with(writer.prefix, part), _from_avro(bytes_, writer, end)))
            case JsonWriter():
                branches.append((begins_with(writer.prefix, part), _from_json(bytes_, writer, end, parsed)))
            case PlainWriter():
                text = bytes_.cast("string") if writer.text else bytes_
                good = bytes_.isNull() | F.is_valid_utf8(text) if writer.text else ~false()
                branches.append((~false(), _judged(text, good, end, writer.column)))
    if messages := _messages(decoding):
        ours, name = (
            begins_with_any([each.prefix for each in messages], part),
            f"calve:protobuf:{len(parsed)}",
        )
        parsed[name] = from_protobuf(F.when(ours, bytes_), messages)
        found = F.col(name)
        branches.append((ours, _judged(found["value"], found["good"], end, messages[0].whole)))
    return case(branches, F.lit(None)) if branches else F.lit(None).cast(NOTHING)


def _judged(value: Column, good: Column, end: bytes, whole: str | None = None) -> Column:
    """A struct of `value` (a struct of columns, or of the one column `whole`) and `end`, which is set if it is good."""
    value = value if whole is None else F.struct(value.alias(whole))
    return F.struct(value.alias("value"), F.when(good, F.lit(bytearray(end))).alias("end"))


def _messages(decoding: DecodePlan) -> list[ProtobufWriter]:
    """The writers of messages, which are decoded together."""
    return [each for each in decoding.writers if isinstance(each, ProtobufWriter)]


def _from_avro(bytes_: Column, writer: AvroWriter, end: bytes) -> Column:
    found, framed_value = resolved(writer.value), F.concat(bytes_, F.lit(bytearray(end)))
    written, read = framed(found.writer, len(writer.prefix)), framed(found.reader)
    options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(read)}
    decoded = from_avro(framed_value, json.dumps(written), options)
    return decoded if found.shape is None else shaped(decoded, found.shape, end)


def _from_json(bytes_: Column, writer: JsonWriter, end: bytes, parsed: dict[str, Column]) -> Column:
    payload = F.substring(bytes_, len(writer.prefix) + 1, 2**31 - 1)
    word = f"w{end.hex()}"  # Spark parses it as a name: digits alone would be a number
    json = JsonValue(payload, writer, word)
    name = f"calve:json:{len(parsed)}"
    parsed[name] = F.when(begins_with(writer.prefix, bytes_), json.parsed())
    return _judged(json.row(F.col(name)), json.is_good(F.col(name)), end, writer.whole)


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


def schema_id(decoding: DecodePlan) -> Column:
    """The id of the schema that reads the value, or that the value names; null if there is none."""
    wire, nothing = decoding.wire, F.lit(None).cast("int")
    if not wire.size:
        [only] = decoding.ids
        number = decoding.numbers.get(only, only)
        return F.when(F.col("value").isNotNull(), F.lit(number or None).cast("int"))
    if not wire.names_are_numbers:
        shown = sorted(decoding.numbers.items())
        numbers = [(any_id(wire, [each]), F.lit(number)) for each, number in shown]
        return case(numbers, nothing) if numbers else nothing
    known = [(begins_with(wire.frame(each)), F.lit(each)) for each in sorted(decoding.ids)]
    framed = F.conv(framed_hex(wire), 16, 10).cast("long").cast("int")
    return case([*known, (is_framed(wire), framed)], nothing)


def is_framed(wire: Wire, part: PartName = "value") -> Column:
    return (F.length(part) >= wire.size) & begins_with_any(wire.magics, part)


def framed_hex(wire: Wire, part: PartName = "value") -> Column:
    """The id in a frame, as hexadecimal digits."""
    return F.hex(F.substring(part, len(wire.magic) + 1, wire.size - len(wire.magic)))


def is_good(end: bytes) -> Column:
    """Whether the value is good; never null."""
    found = F.col(DECODED["value"])["end"] == F.lit(bytearray(end))
    return F.coalesce(found, false())


def verdict(decoding: DecodePlan, end: bytes) -> Column:
    """The reject reason of a record. The good case is tested first, because nearly every record is good."""
    wire, found = decoding.wire, F.col(DECODED["value"])["end"]
    framed = [
        (F.length("value") < wire.size, F.lit("truncated")),
        (~begins_with_any(wire.magics), F.lit("bad_magic")),
        (begins_with_any(decoding.others), F.lit(None).cast("string")),
        (any_id(wire, decoding.incompatible), F.lit("incompatible_schema")),
        (begins_with_any(_other_messages(decoding)), F.lit("incompatible_schema")),
        (~any_id(wire, {writer.id for writer in decoding.writers}), F.lit("unknown_schema_id")),
    ]
    return case(
        [
            (found == F.lit(bytearray(end)), F.lit(None).cast("string")),
            (F.col("value").isNull(), F.lit("null_value")),
            *(framed if wire.size else ()),
            (found.isNull(), F.lit("malformed")),
        ],
        F.lit("trailing_bytes"),
    )


def verdict_on_key(decoding: DecodePlan, end: bytes) -> Column:
    """The reject reason of a key; a record without a key has a null in its column."""
    wire, good = decoding.wire, F.col(DECODED["key"])["end"] == F.lit(bytearray(end))
    unknown = is_framed(wire, "key") & ~any_id(wire, decoding.ids, "key")
    framed = [
        (any_id(wire, decoding.incompatible, "key"), F.lit("key_incompatible_schema")),
        (begins_with_any(_other_messages(decoding), "key"), F.lit("key_incompatible_schema")),
        (unknown, F.lit("key_unknown_schema_id")),
    ]
    return case(
        [(F.col("key").isNull() | good, F.lit(None).cast("string")), *(framed if wire.size else ())],
        F.lit("key_malformed"),
    )


def other(decoding: DecodePlan) -> Column:
    """The index of the other table's schema that wrote the value. All beyond `MAX_OTHERS` count as one."""
    branches = []
    for number, each in enumerate(decoding.other_ids[:MAX_OTHERS]):
        prefixes = [prefix for prefix in decoding.others if decoding.wire.schema_id(prefix) == each]
        branches.append((begins_with_any(prefixes), F.lit(number)))
    return case(branches, F.when(begins_with_any(decoding.others), F.lit(MAX_OTHERS)))


def any_id(wire: Wire, ids: Iterable[int], part: PartName = "value") -> Column:
    return begins_with_any([frame for each in sorted(ids) for frame in wire.frames(each)], part)


def begins_with_any(prefixes: Iterable[bytes], part: PartName = "value") -> Column:
    found = (begins_with(each, part) for each in prefixes)
    return reduce(lambda a, b: a | b, found, false())


def _other_messages(decoding: DecodePlan) -> list[bytes]:
    """The prefixes of values that are other messages of a known schema."""
    return [prefix for each in _messages(decoding) for prefix in each.others]


def begins_with(prefix: bytes, found: Column | PartName = "value") -> Column:
    """Compares bytes, because a number would need a string per record."""
    return F.substring(found, 1, len(prefix)) == F.lit(bytearray(prefix))
