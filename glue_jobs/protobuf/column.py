"""Protobuf values as a Spark column: an Arrow function, in the Python processes that Spark starts beside its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from glue_jobs.protobuf.decoder import GOOD, VALUE, Frame, decode, row_type
from glue_jobs.shapes import spark_type


def from_protobuf(value: Column, frames: Sequence[Frame]) -> Column:
    """A struct of `VALUE` (the row) and `GOOD` for each value (binary) that is framed so, null for others."""
    frames = tuple(frames)

    def decoded(values: pa.Array) -> pa.Array:
        return decode(values, frames)

    kind = f"struct<{VALUE}: {spark_type(row_type(frames))}, {GOOD}: boolean>"
    made: Any = arrow_udf(decoded, kind)  # type: ignore[call-overload]
    # Spark would evaluate it once more for each condition on its result that it moves below it.
    return made.asNondeterministic()(value)  # type: ignore[no-any-return]
