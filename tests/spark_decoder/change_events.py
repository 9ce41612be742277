"""Change events to rows: the row that an event changes, and the change (ADR 19). No Python per record.

`calve.schema.change_events.read_as` defines how an event is decoded: `op`, `before`, `after` and a part of `source`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.schema.change_events import slots
from calve.schema.columns import CHANGE, MOST_MILLIS
from glue_jobs.columns.expressions import DECODED, IDLE, TOMBSTONE, false
from tests.spark_decoder.shapes import kept_within_years

WRITES, DELETES, TRUNCATES, SAYS = ("c", "r", "u"), "d", "t", "m"
OP = f"{CHANGE['name']}.op"
DIGITS = 20
"""The digits of the greatest 64-bit number. Integers are padded to this length, so that their texts sort as they do."""
VALUE = DECODED["value"]


def with_rows(decoded: DataFrame, order: Sequence[str]) -> DataFrame:
    """Replace `decoded.value` by the row of the event, with the column `CHANGE`; a deleted row as the event has it.

    Databases have dates before year 1 or after 9999. They become the first or the last allowed one (ADR 40).
    The event is its own column first: otherwise Spark would decode each record for every use of the expression.
    """
    read = decoded.schema[VALUE].dataType["value"].dataType  # type: ignore[index]
    if "op" not in read.names:
        return decoded
    event = F.col(VALUE)["value"]
    row = F.when(event["op"] == DELETES, event["before"]).otherwise(event["after"])
    columns = (
        kept_within_years(row[each.name], each.dataType).alias(each.name)
        for each in read["after"].dataType.fields
    )
    change = F.struct(
        event["op"].alias("op"),
        _moment(event["source"]).alias("at"),
        _position(event["source"], order).alias("position"),
        (event["op"] == DELETES).alias("deleted"),
    )
    made = F.struct(
        F.struct(*columns, change.alias(CHANGE["name"])).alias("value"),
        F.col(VALUE)["end"].alias("end"),
        event["after"].isNotNull().alias("written"),
    )
    return decoded.withColumn(VALUE, made)


def is_bad(rows: DataFrame) -> Column:
    """True for events of unknown kind, or without the row that they write. Needs the result of `with_rows`."""
    if not _has_events(rows):
        return false()
    op = _op()
    fine = (op.isin(*WRITES) & F.col(VALUE)["written"]) | op.isin(DELETES, TRUNCATES, SAYS)
    return ~F.coalesce(fine, false())


def tombstones_and_idle(rows: DataFrame, *, deletes: bool, keep_deleted: bool) -> dict[str, Column]:
    """Columns that mark deletions, and events without a single row: truncations, messages, tombstones without a key."""
    empty = F.col("value").isNull()
    op = _op() if _has_events(rows) else F.lit(None).cast("string")
    deleted = false() if keep_deleted else F.coalesce(op == DELETES, false())
    idle = F.coalesce(op.isin(TRUNCATES, SAYS), false())
    if deletes:
        return {TOMBSTONE: deleted | empty, IDLE: idle}
    return {TOMBSTONE: deleted, IDLE: idle | empty}


def _has_events(rows: DataFrame) -> bool:
    return "written" in rows.schema[VALUE].dataType.names  # type: ignore[attr-defined]


def _op() -> Column:
    return F.col(VALUE)["value"][CHANGE["name"]]["op"]


def _moment(source: Column) -> Column:
    millis = source["ts_ms_long"]
    coarse = F.when(millis.between(-MOST_MILLIS, MOST_MILLIS), F.timestamp_millis(millis))
    return F.coalesce(F.timestamp_micros(source["ts_us_long"]), coarse)


def _position(source: Column, order: Sequence[str]) -> Column:
    """Text that sorts as the fields do, one after the other; null if an event has none of them."""
    parts = []
    for name in order:
        held = [source[slot] for slot, (field, _) in slots(order).items() if field == name]
        text = F.coalesce(*(each.cast("string") for each in held))
        number = text.rlike(r"\A[0-9]{1,20}\z")
        parts.append(F.when(number, F.lpad(text, DIGITS, "0")).otherwise(text))
    if not parts:
        return F.lit(None).cast("string")
    some = reduce(Column.__or__, (each.isNotNull() for each in parts))
    return F.when(some, F.concat_ws("/", *(F.coalesce(each, F.lit("")) for each in parts)))
