"""Reject reasons: from the frame of a record, its decoded value and its key."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from calve.config.job import PartName
from calve.decoding.decode_plan import DecodePlan
from calve.schema.wire import Wire
from calve.schema.writers import ProtobufWriter, WholeWriter, Writer
from glue_jobs.columns.expressions import case, false
from glue_jobs.columns.helpers import DECODED

MAX_OTHERS = 100


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
