"""Kafka records as a DataFrame: Spark tasks fetch record batches in Python and return Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from calve.names import quote
from calve.schema.columns import MOST_MILLIS, UNDELIVERED
from calve.table.position import Offsets
from glue_jobs.columns.buffers import PartOf
from glue_jobs.columns.expressions import REFUSED
from glue_jobs.kafka.client import Settings
from glue_jobs.kafka.fetching import CHUNK_BYTES, Range, fetch, planned
from glue_jobs.kafka.records import Records, header_lists, named_array, parts
from glue_jobs.process.workers import cpu_since_last_s, errors_by_value, map_in_arrow

MILLIS = "calve:millis"
HEADERS = T.ArrayType(
    T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
)
SCHEMA = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField(MILLIS, T.LongType()),
        T.StructField("timestampType", T.IntegerType()),
        T.StructField("headers", HEADERS),
        T.StructField(REFUSED, T.StringType()),
    ]
)
SAMPLE = 1_000
"""The number of offsets in a sample of record sizes."""
Adding = tuple[T.StructType, Callable[[], Callable[[PartOf], list[pa.Array]]]]
"""Further columns, and what makes them of records (`named_array`); a task calls for it at its start."""
NOTHING_MORE: Adding = T.StructType(), lambda: lambda _: []
_REASONS = pa.array([None, *UNDELIVERED], pa.string())


def read(
    spark: SparkSession,
    settings: Settings,
    topic: str,
    topic_id: str,
    start: Offsets,
    to: Offsets,
    *,
    tasks: int,
    cpu_s: Accumulator[float],
    adding: Adding = NOTHING_MORE,
    leaving_out: Collection[str] = (),
) -> DataFrame:
    """Exactly the committed records with offsets in [start, to), in at most `tasks` tasks.

    Columns: key, value, topic, partition, offset, timestamp (null if no column holds it), timestampType, headers (null if
    none) and `REFUSED`. Each action reads the records again. `to` must not be beyond the last stable offset.
    adding: further columns. leaving_out: columns that are not needed otherwise.
    `glue_jobs.process.workers.errors_of_workers` finds errors of tasks (as `fetch`). `cpu_s` receives the tasks' CPU seconds.
    """
    ranges = planned(start, to, tasks)
    numbers = spark.range(0, len(ranges), 1, max(len(ranges), 1)).toDF("number")._jdf
    # Spark must not know the size of this frame: it would take the records for as small, and broadcast them in a join.
    session: Any = spark
    frame = DataFrame(session._jsparkSession.createDataFrame(numbers.toJavaRDD(), numbers.schema()), spark)

    more, begun = adding
    kept = [each for each in SCHEMA.names if each not in leaving_out]
    columns = T.StructType([*(SCHEMA[each] for each in kept), *more])

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_by_value():
            added = begun()
            for numbers in batches:
                for number in numbers.column(0).to_pylist():
                    for records in fetch(settings, topic, topic_id, ranges[number], CHUNK_BYTES):
                        found = _batch(records, kept)
                        yield pa.RecordBatch.from_arrays(
                            [*found.columns, *added(partial(named_array, records))], columns.names
                        )
        cpu_s.add(cpu_since_last_s())

    return _named(map_in_arrow(frame, task, columns), topic)


def fetch_few(settings: Settings, topic: str, topic_id: str, start: Offsets, to: Offsets) -> pa.Table:
    """The records of `read`, fetched by this process. For a few, a worker takes longer to start than to read.

    Columns: those of `SCHEMA`. Raises: as `fetch`.
    """
    found = [
        _batch(each)
        for ranges in planned(start, to, 1)
        for each in fetch(settings, topic, topic_id, ranges, CHUNK_BYTES)
    ]
    return pa.Table.from_batches(found) if found else to_arrow_schema(SCHEMA).empty_table()


def frame_of(spark: SparkSession, found: pa.Table, topic: str) -> DataFrame:
    """The records of `fetch_few` with the columns of `read`."""
    return _named(spark.createDataFrame(found if len(found) else [], SCHEMA), topic)


def _named(found: DataFrame, topic: str) -> DataFrame:
    at = quote(MILLIS)
    known = f"CASE WHEN {at} BETWEEN {-MOST_MILLIS} AND {MOST_MILLIS} THEN timestamp_millis({at}) END"
    others = [quote(each) for each in found.columns if each != MILLIS]
    return found.selectExpr(*others, f"'{topic}' AS topic", f"{known} AS timestamp")


def bytes_per_record(
    settings: Settings, topic: str, topic_id: str, start: Offsets, to: Offsets
) -> float | None:
    """The average size of a record in Kafka, from the first ones of the partition with the most; None if unknown.

    Errors are ignored: the next read reports them.
    """
    partition = max(start, key=lambda each: to[each] - start[each])
    sample = Range(partition, at := start[partition], min(to[partition], at + SAMPLE))
    size = count = 0
    with suppress(Exception):
        for each in fetch(settings, topic, topic_id, [sample], CHUNK_BYTES):
            held = (np.maximum(sizes, 0).sum(dtype=np.int64) for sizes in (each.key_size, each.value_size))
            size, count = size + int(sum(held)), count + len(each)
        return size / count if count else None
    return None


def _batch(records: Records, names: Sequence[str] = SCHEMA.names) -> pa.RecordBatch:
    """These columns of `SCHEMA`."""
    return pa.RecordBatch.from_arrays([_column(records, each) for each in names], list(names))


def _column(records: Records, name: str) -> pa.Array:
    binary, size, whys = pa.binary(), len(records), records.refused
    match name:
        case "key":
            return parts(binary, records.buffer, records.key_at, records.key_size)
        case "value":
            return parts(binary, records.buffer, records.value_at, records.value_size)
        case "partition":
            return pa.repeat(pa.scalar(records.partition, pa.int32()), size)
        case "offset":
            return pa.array(records.offset)
        case "timestampType":
            return pa.array(records.timestamp_type.astype(np.int32))
        case "headers":
            return header_lists(records, np.arange(size))
        case _ if name == MILLIS:
            return pa.array(records.timestamp)
    return _REASONS.take(pa.array(whys)) if whys.any() else pa.nulls(size, pa.string())
