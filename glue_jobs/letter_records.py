"""Dead letters as the records that they were: columns as those of `glue_jobs.kafka.source`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.columns import DEAD_LETTERS, REDRIVEN, UNDELIVERED
from calve.redrive import Request
from glue_jobs.kafka.records import REFUSED
from glue_jobs.lake import Table
from glue_jobs.marks import rows_at
from glue_jobs.seals import UNOPENED, opened
from glue_jobs.target import Target

LETTER = "calve:letter"
"""A column beside those of a record: the letter as it is."""


def as_records(target: Target, table: Table, request: Request) -> DataFrame:
    """The selected letters as records, each with its `LETTER`, which stays sealed, and `UNOPENED`.

    Those that the source has refused it refuses again: they are not all of their records.
    """
    found = rows_at(target.lake, table, table.head).where(F.col(REDRIVEN).isNull())
    for wanted in _conditions(request):
        found = found.where(wanted)
    return records_of(target, found)


def records_of(target: Target, letters: DataFrame) -> DataFrame:
    """As `as_records`, of these letters."""
    names = [each["name"] for each in DEAD_LETTERS["fields"]]
    found = opened(letters.withColumn(LETTER, F.struct(*names)), target.masking_keys)
    return found.select(
        *(LETTER, UNOPENED),
        *("key", "value", "headers", "topic", "partition", "offset", "timestamp"),
        F.col("timestamp_type").alias("timestampType"),
        F.when(F.col("reason").isin(*UNDELIVERED), F.col("reason")).alias(REFUSED),
    )


def _conditions(request: Request) -> Iterable[Column]:
    if request.reason is not None:
        yield F.col("reason") == request.reason
    if request.schema_id is not None:
        yield F.col("schema_id") == request.schema_id
    if request.since is not None:
        yield F.col("rejected_at") >= F.lit(datetime.fromisoformat(request.since))
    if request.until is not None:
        yield F.col("rejected_at") < F.lit(datetime.fromisoformat(request.until))
