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
from calve.decoding.decode_plan import MAX_OTHERS, DecodePlan
from calve.modes.mode import APPEND, Mode
from calve.schema.wire import GLUE, Wire
from calve.schema.writers import (
    AvroWriter,
    JsonWriter,
    PlainWriter,
    ProtobufWriter,
    WholeWriter,
    Writer,
)
from glue_jobs.columns.expressions import case, false
from glue_jobs.columns.helpers import DECODED, OTHER, RAW, REFUSED, REJECT, SCHEMA_ID, SIZE, TOMBSTONE
from glue_jobs.decode.change_events import is_bad, tombstones_and_idle, with_rows
from glue_jobs.decode.json_values import JsonValue
from glue_jobs.decode.protobuf.decoder import Frame, from_protobuf
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
    messages = (inner for writer in decoding.writers if (inner := message(writer)) is not None)
    return [prefix for each in messages for prefix in each.others]


def begins_with(prefix: bytes, found: Column | PartName = "value") -> Column:
    """Compares bytes, because a number would need a string per record."""
    return F.substring(found, 1, len(prefix)) == F.lit(bytearray(prefix))


def message(writer: Writer) -> ProtobufWriter | None:
    inner = writer.inner if isinstance(writer, WholeWriter) else writer
    return inner if isinstance(inner, ProtobufWriter) else None
