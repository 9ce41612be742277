"""The records of a DataFrame by key, as arrays in the driver, however long their rows are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs.columns.expressions import OFFSET, PARTITION, TIMESTAMP, TOMBSTONE, at, false, key_columns
from glue_jobs.index.decision import KeyedRecords, KeyRule, order_of
from glue_jobs.index.hashing import hashes
from glue_jobs.process.workers import map_in_arrow

PLACE = {"partition": T.IntegerType(), "offset": T.LongType(), "timestamp": T.LongType()}
"""Together they identify a record: a topic that was made again has the same offsets, at other times."""
KINDS = {"high": T.LongType(), "low": T.LongType(), **PLACE, "deletes": T.BooleanType()}


def records_of(rows: DataFrame, rule: KeyRule) -> KeyedRecords:
    """rows: good records with `_kafka` and the columns of the rule; those with a true `TOMBSTONE` delete. In no order."""
    deletes = F.col(TOMBSTONE) if TOMBSTONE in rows.columns else false()
    order = F.lit(None).cast("long") if rule.order_by is None else at(rule.order_by)
    columns = (*_place().values(), deletes, order, *key_columns(rule.key))
    named = rows.select(*(each.alias(f"c{number}") for number, each in enumerate(columns)))
    kinds = KINDS | {"order": _order_type(named.schema[f"c{len(PLACE) + 1}"].dataType)}
    read = map_in_arrow(
        named, _keyed, T.StructType([T.StructField(*each) for each in kinds.items()])
    ).toArrow()
    high, low, *others = (each.to_numpy() for each in read.columns[:-1])
    return KeyedRecords._make(
        [high.view(np.uint64), low.view(np.uint64), *others, read["order"].combine_chunks()]
    )


def only(rows: DataFrame, every: KeyedRecords, chosen: NDArray[np.bool_]) -> DataFrame:
    """The rows of the chosen ones among `every` of their records."""
    few, how = (chosen, "left_semi") if 2 * chosen.sum() <= len(chosen) else (~chosen, "left_anti")
    if how == "left_anti" and chosen.all():
        return rows
    return at_places(rows, every.take(few), how)


def at_places(rows: DataFrame, records: KeyedRecords, how: str = "left_semi") -> DataFrame:
    """The rows of these records, or with `left_anti` the others."""
    places = pa.table({f"calve:{name}": getattr(records, name) for name in PLACE})
    frame = rows.sparkSession.createDataFrame(places)
    same = [here == F.col(f"calve:{name}") for name, here in _place().items()]
    return rows.join(F.broadcast(frame), same, how)


def together(*columns: NDArray[Any]) -> NDArray[Any]:
    """Columns of integers as one, whose values numpy's set operations compare as a whole."""
    return np.rec.fromarrays([each.astype(np.int64) for each in columns])


def _place() -> dict[str, Column]:
    return dict(zip(PLACE, (at(PARTITION), at(OFFSET), F.unix_micros(at(TIMESTAMP))), strict=True))


def _keyed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in tasks."""
    for batch in batches:
        (*place, deletes, order), key = batch.columns[:5], batch.columns[5:]
        found = [pa.array(half.view(np.int64)) for half in hashes(key)]
        yield pa.RecordBatch.from_arrays([*found, *place, deletes, order_of(order)], [*KINDS, "order"])


def _order_type(kind: T.DataType) -> T.DataType:
    """The type of `order_of` for a column."""
    if isinstance(kind, T.DecimalType):
        return T.DecimalType(38, kind.scale)
    return T.BinaryType() if isinstance(kind, T.StringType | T.BinaryType) else T.LongType()
