"""Frames of explicit rows, as steps get them: data columns, `_kafka` and columns of calve's own."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from glue_jobs.columns.expressions import FILTERED, REJECT
from glue_jobs.transform.row_columns import data


def frame(spark: SparkSession, schema: str, *rows: tuple[Any, ...], **own: str) -> DataFrame:
    """Rows of the data columns of `schema`, numbered by their offset. own: further columns, name -> type; a row has them last."""
    extra = "".join(f", `calve:{name}` {kind}" for name, kind in own.items())
    numbered = [(offset, *row) for offset, row in enumerate(rows)]
    made = spark.createDataFrame(numbered, f"`calve:at` long, {schema}{extra}")
    kafka = F.struct(
        F.lit("trades").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("calve:at").alias("offset"),
        F.lit(b"key").alias("key"),
    )
    reject = {} if "reject" in own else {REJECT: F.lit(None).cast("string")}
    return made.withColumns({"_kafka": kafka} | reject).drop("calve:at")


def by_offset(rows: DataFrame) -> list[Row]:
    return sorted(rows.collect(), key=lambda row: row["_kafka"]["offset"])


def outcome(rows: DataFrame) -> list[Any]:
    """Of each row its values, or why there are none: "filtered", or the reason of its reject."""
    names = data(rows)
    found: list[Any] = []
    for row in by_offset(rows):
        gone = row[REJECT] or ("filtered" if row.asDict().get(FILTERED) else None)
        found.append(gone or tuple(row[name] for name in names))
    return found
