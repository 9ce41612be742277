"""Decoded records as table rows and as dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.config.steps import UNMET, Expect, Step, place
from calve.decoding.decode_plan import DecodePlan
from calve.names import SYSTEM_COLUMN, quote
from calve.schema.columns import LATER, REASONS, Json
from calve.schema.inference import SHAPE
from calve.table.position import TopicKey
from glue_jobs.columns.expressions import (
    DECODED,
    FILTERED,
    IDLE,
    OFFSET,
    OTHER,
    PARTITION,
    RECEIVED,
    REJECT,
    RULE,
    SCHEMA_ID,
    SIZE,
    TOMBSTONE,
    at,
    false,
    named_column,
    spark_type,
)
from glue_jobs.decode.explaining.explanation import explanation


def flattened(decoded: DataFrame, columns: Json, *beside: str) -> DataFrame:
    """The decoded columns, `_kafka`, reject, size and `OTHER`, and the columns named in `beside`. Steps and counts need them.

    Raw values end here, except in `RECEIVED`: Spark copies every column that passes an observation, and a value is
    the widest.
    """
    fields = {
        name: f"{quote(part)}.value.{quote(name)}"
        for part in DECODED.values()
        if part in decoded.columns
        for name in decoded.schema[part].dataType["value"].dataType.names  # type: ignore[index]
    }
    kinds = {each["name"]: spark_type(each["type"]) for each in columns["fields"]}
    named = (f"{fields.get(n, f'CAST(NULL AS {kind})')} AS {quote(n)}" for n, kind in kinds.items())
    place = "`topic`, `partition`, `offset`, `timestamp`, `timestampType` AS timestamp_type"
    kafka = f"struct({place}, `key`, `headers`, {quote(SCHEMA_ID)}) AS {SYSTEM_COLUMN}"
    counted = [each for each in (REJECT, SIZE, OTHER, TOMBSTONE, IDLE) if each in decoded.columns]
    further = [
        f"struct(`key`, `value`, `headers`) AS {quote(RECEIVED)}" if each == RECEIVED else quote(each)
        for each in beside
    ]
    return decoded.selectExpr(*named, kafka, *map(quote, counted), *further)


def with_keys(flat: DataFrame, key: Sequence[str], *, drops: bool = False) -> DataFrame:
    """Reject records with a null in a key column, except records that make no row. drops: filtered records delete the row of
    their key, if they have one.
    """
    nameless = reduce(Column.__or__, (at(path).isNull() for path in key))
    for name in (IDLE, FILTERED):
        nameless = nameless & ~F.col(name) if name in flat.columns else nameless
    if OTHER in flat.columns:
        nameless = nameless & F.col(OTHER).isNull()
    if drops and FILTERED in flat.columns:
        has_key = reduce(Column.__and__, (at(path).isNotNull() for path in key))
        flat = flat.withColumn(TOMBSTONE, F.col(TOMBSTONE) | (F.col(FILTERED) & has_key))
    before = F.col(REJECT) if REJECT in flat.columns else F.lit(None).cast("string")
    return flat.withColumn(REJECT, F.coalesce(before, F.when(nameless, F.lit("null_key"))))


def teaching(made: DataFrame, rest: str) -> Iterator[str]:
    """The texts of a rest column, of those that are alike only the first by partition and offset, in this order."""
    text = shape = F.col(rest)
    for pattern, replacement in SHAPE:
        shape = F.regexp_replace(shape, pattern, replacement)
    first = F.min(F.struct(at(PARTITION).alias("partition"), at(OFFSET).alias("offset"), text.alias("text")))
    found = made.where(text.isNotNull()).groupBy(shape).agg(first.alias("first")).orderBy("first")
    return (row[0] for row in found.select("first.text").toLocalIterator())


def rows(flat: DataFrame) -> DataFrame:
    """The good records as table rows. A row that deletes is marked by `TOMBSTONE`."""
    good = flat.where(F.col(REJECT).isNull()) if REJECT in flat.columns else flat
    good = good.where(~F.col(IDLE)) if IDLE in flat.columns else good
    if FILTERED in flat.columns:
        deletes = F.col(TOMBSTONE) if TOMBSTONE in flat.columns else false()
        good = good.where(~F.col(FILTERED) | deletes)
    good = good.where(F.col(OTHER).isNull()) if OTHER in flat.columns else good
    return good.drop(REJECT, SIZE, OTHER, IDLE, FILTERED, RULE)


def rejected(
    flat: DataFrame, decoding: DecodePlan, steps: Sequence[Step], *, topic: TopicKey, round_id: str
) -> DataFrame:
    """The rejected records, with `RECEIVED`, as rows of the dead-letter table, in its column order."""
    kafka, received = F.col(SYSTEM_COLUMN), F.col(RECEIVED)
    return flat.where(F.col(REJECT).isNotNull()).select(
        F.lit(topic.cluster_id).alias("cluster_id"),
        F.lit(topic.topic_id).alias("topic_id"),
        *(
            kafka[name].alias(name)
            for name in ("topic", "partition", "offset", "timestamp", "timestamp_type")
        ),
        *(received[name].alias(name) for name in ("key", "value", "headers")),
        kafka[SCHEMA_ID].alias(SCHEMA_ID),
        F.lit("decode").alias("stage"),
        F.col(REJECT).alias("reason"),
        message(decoding, steps if RULE in flat.columns else ()).alias("message"),
        F.lit(1).alias("attempt"),
        F.lit(round_id).alias("round"),
        F.current_timestamp().alias("rejected_at"),
        *(F.lit(None).cast("string").alias(name) for name in LATER),
    )


def message(decoding: DecodePlan, steps: Sequence[Step] = ()) -> Column:
    """Why each reject cannot be a row, in a sentence. Needs records with `RECEIVED`; with steps, `RULE`, too."""
    reasons = F.create_map(*(F.lit(text) for pair in REASONS.items() for text in pair))
    unmet = F.lit(None).cast("string")
    for number, step in enumerate(steps):
        if isinstance(step, Expect):
            text = F.lit(f"{place(steps, number)} is not met: {step.condition}")
            unmet = F.coalesce(unmet, F.when((F.col(REJECT) == UNMET) & (F.col(RULE) == number), text))
    return F.coalesce(explained(decoding), unmet, reasons[F.col(REJECT)])


def explained(decoding: DecodePlan) -> Column:
    """Where and why a reject does not match its schema; null if unknown. Needs records with `RECEIVED`."""
    received = F.col(RECEIVED)
    value = named_column("value", decoding.wire, received["value"], received["headers"])
    key = received["key"]
    if decoding.key is not None:
        key = named_column("key", decoding.key.wire, key, received["headers"])
    return explanation(decoding, F.col(REJECT), value, key, received["headers"])
