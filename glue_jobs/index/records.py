"""The records of a DataFrame by key, as arrays in the driver: 45 bytes each, however long their rows are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs.columns.expressions import OFFSET, PARTITION, TIMESTAMP, at, false, key_columns
from glue_jobs.columns.helpers import TOMBSTONE
from glue_jobs.index.decision import KeyedRecords, KeyRule, order_of
from glue_jobs.index.hashing import hashes
from glue_jobs.process.workers import map_in_arrow

PLACE = {"partition": T.IntegerType(), "offset": T.LongType(), "timestamp": T.LongType()}
"""Together they identify a record: a topic that was made again has the same offsets, at other times."""
KINDS = {
    "high": T.LongType(),
    "low": T.LongType(),
    **PLACE,
    "order": T.LongType(),
    "deletes": T.BooleanType(),
}
KEYED = T.StructType([T.StructField(name, kind) for name, kind in KINDS.items()])


def records_of(rows: DataFrame, rule: KeyRule) -> KeyedRecords:
    """rows: good records with `_kafka` and the columns of the rule; those with a true `TOMBSTONE` delete. In no order."""
    deletes = F.col(TOMBSTONE) if TOMBSTONE in rows.columns else false()
    order = F.lit(None).cast("long") if rule.order_by is None else at(rule.order_by)
    columns = (*_place().values(), order, deletes, *key_columns(rule.key))
    named = [each.alias(f"c{number}") for number, each in enumerate(columns)]
    high, low, *others = (
        each.to_numpy() for each in map_in_arrow(rows.select(*named), _keyed, KEYED).toArrow()
    )
    return KeyedRecords(high.view(np.uint64), low.view(np.uint64), *others)


def values_of(rows: DataFrame, records: KeyedRecords, path: str) -> pa.Array:
    """The values of a column of the rows, one for each of the records."""
    columns = [*_place().values(), at(path)]
    read = rows.select(*(each.alias(f"c{number}") for number, each in enumerate(columns))).toArrow()
    *place, values = (each.combine_chunks() for each in read.columns)
    places, first = np.unique(together(*(each.to_numpy() for each in place)), return_index=True)
    wanted = together(*(getattr(records, name) for name in PLACE))
    return values.take(pa.array(first[np.searchsorted(places, wanted)]))


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
        place, (order, deletes, *key) = batch.columns[:3], batch.columns[3:]
        found = [pa.array(half.view(np.int64)) for half in hashes(key)]
        yield pa.RecordBatch.from_arrays([*found, *place, pa.array(order_of(order)), deletes], KEYED.names)
