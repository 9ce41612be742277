"""The totals of a DataFrame's records. Spark's tasks fold them: the driver gets a row for each group of a task."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from glue_jobs.columns.expressions import at
from glue_jobs.process.workers import errors_by_value, map_in_arrow
from glue_jobs.totals.fold import Fold, Gathered, Totals, packed, unpacked

SENT = T.StructType([T.StructField("totals", T.BinaryType())])
"""Parts of a table of totals, `packed`: Spark has no decimals of 256 bits."""
PART_ROWS = 65_536


def totals_of(good: DataFrame, fold: Fold) -> Totals:
    """good: records with a value in each column of the group."""
    columns = [at(path).alias(f"c{number}") for number, path in enumerate(fold.paths)]

    def folded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_by_value():  # the text of Arrow's errors may quote a record
            gathered = Gathered(fold)
            for batch in batches:
                gathered.add(dict(zip(fold.paths, batch.columns, strict=True)))
            for part in gathered.together().rows.to_batches(PART_ROWS):
                yield pa.RecordBatch.from_arrays([pa.array([packed(part)])], SENT.names)

    found = map_in_arrow(good.select(*columns), folded, SENT).toArrow()
    parts = [unpacked(each.as_buffer()) for each in found[0]]
    return Totals(fold, fold.folded(pa.concat_tables([fold.schema.empty_table(), *parts])))
