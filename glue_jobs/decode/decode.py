"""Decode records of Kafka or of dead letters in Spark, each to columns or to a reject reason. No Python per record.

Spark hands values and keys to the machines of both engines as Arrow arrays (ADR 51).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from calve.decoding.decode_plan import DecodePlan
from calve.modes.mode import APPEND, Mode
from calve.schema.change_events import DELETES, SAYS, TRUNCATES, row_of_event
from calve.schema.columns import CHANGE, field, struct
from glue_jobs.columns.expressions import false, spark_type
from glue_jobs.columns.helpers import DECODED, IDLE, OTHER, REFUSED, REJECT, SCHEMA_ID, SIZE, TOMBSTONE

NOTHING = field("nothing", "boolean")
KEY_REASONS = ("incompatible_schema", "unknown_schema_id")


def decode(records: DataFrame, decoding: DecodePlan, mode: Mode = APPEND) -> DataFrame:
    """Add `DECODED`, `schema_id`, `REJECT` (a key of `REASONS`; null if good) and `SIZE`.

    Keeps every column and every record; records `REFUSED` by the source stay so.
    The size is that of key and value in bytes, as received. If the key is read, it is decoded in the same way.
    `OTHER`: for records of other tables, the index of their schema in `DecodePlan.other_ids`, at most `MAX_OTHERS`. They have
    no `REJECT`. `TOMBSTONE` marks records that delete. A record without a value is then no reject.
    For change events, `DECODED` holds their rows, and `IDLE` marks events without a single row.
    """
    order = mode.source_order if mode.reads_changes else None
    decoded = {DECODED["value"]: _judged("value", decoding, order)}
    if decoding.key is not None:
        decoded[DECODED["key"]] = _judged("key", decoding.key)
    found, value = records.withColumns(decoded), F.col(DECODED["value"])
    delivered = F.col(REFUSED).isNull()
    other = F.when(delivered, value["other"])
    reject, ours = F.coalesce(F.col(REFUSED), value["reason"]), value["reason"].isNull() & other.isNull()
    empty = F.col("value").isNull() & delivered
    marks: dict[str, Column] = {}
    if mode.reads_changes:
        marks = _tombstones_and_idle(mode, value["value"][CHANGE["name"]]["op"])
    elif mode.deletes:
        marks = {TOMBSTONE: empty}
    if marks:
        reject, ours = F.when(~empty, reject), ours | empty
    if decoding.key is not None:
        reject = F.coalesce(reject, F.when(ours, _key_reason()))
    size = [F.coalesce(F.length(part), F.lit(0)) for part in DECODED]
    judged = {
        SCHEMA_ID: value["number"],
        REJECT: reject,
        SIZE: reduce(Column.__add__, size).cast("long"),
    }
    if decoding.others:
        judged[OTHER] = other
    return found.withColumns(judged | marks)


def _judged(part: str, decoding: DecodePlan, order: Sequence[str] | None = None) -> Column:
    """As `DECODED`. order: of change events, as `Judge`."""
    columns = struct(*(decoding.columns["fields"] or [NOTHING]))
    if order is not None:
        columns = struct(*row_of_event(columns)["fields"], CHANGE)
    kind = f"struct<value: {spark_type(columns)}, reason: string, number: int, other: int>"

    def judged(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        from glue_jobs.decode.machines.judging import Judge  # compiles in a worker, not where the job starts

        judge = Judge(decoding, columns, order)
        for each in batches:
            yield from judge.judge(each)

    made: Any = arrow_udf(judged, kind)  # type: ignore[call-overload]
    # Otherwise Spark evaluates it again for each condition on its result that it pushes down.
    return made.asNondeterministic()(F.col(part))  # type: ignore[no-any-return]


def _tombstones_and_idle(mode: Mode, op: Column) -> dict[str, Column]:
    """Columns that mark deletions, and events without a single row: truncations, messages, tombstones without a key."""
    empty = F.col("value").isNull()
    deleted = false() if mode.keep_deleted else F.coalesce(op == DELETES, false())
    idle = F.coalesce(op.isin(TRUNCATES, SAYS), false())
    if mode.deletes:
        return {TOMBSTONE: deleted | empty, IDLE: idle}
    return {TOMBSTONE: deleted, IDLE: idle | empty}


def _key_reason() -> Column:
    """The reject reason of a key; null if it is good, or if there is none."""
    why = F.col(DECODED["key"])["reason"]
    reason = F.when(why.isin(*KEY_REASONS), F.concat(F.lit("key_"), why)).otherwise("key_malformed")
    return F.when(F.col("key").isNotNull() & why.isNotNull(), reason)
