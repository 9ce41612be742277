"""The first step of a table that shares its topic with others: which records are its own, by a value that they hold."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, IntegralType, StringType, StructType

from calve.names import quote_path
from calve.steps import Route, Value
from glue_jobs.decode import REJECT
from glue_jobs.shapes import false
from glue_jobs.steps.frame import FILTERED, beside, data, is_live, unusable
from glue_jobs.steps.paths import type_at

NO_ROUTE = "no_route"
KINDS: dict[type[DataType], type[Value]] = {StringType: str, IntegralType: int, BooleanType: bool}


def run_route(frame: DataFrame, step: Route) -> DataFrame:
    """Records of other tables are filtered. One that no table names is filtered, too, stays, or is rejected.

    Raises:
        Suspended: `step_unusable`, where there is no such column, or none that can hold the values.
    """
    _require_fit(frame, step)
    live, value = is_live(frame), F.col(quote_path(step.column))
    own, named = _is_one(value, step.values), _is_one(value, step.named)
    match step.others:
        case "leave_out":
            left_out, lost = ~own, false()
        case "keep":
            left_out, lost = named, false()
        case "reject":
            left_out, lost = named & ~own, ~named
    reject = F.col(REJECT) if REJECT in frame.columns else F.lit(None).cast("string")
    filtered = F.col(FILTERED) if FILTERED in frame.columns else false()
    return frame.select(
        *data(frame),
        *(name for name in beside(frame) if name not in (REJECT, FILTERED)),
        F.coalesce(reject, F.when(live & lost, F.lit(NO_ROUTE))).alias(REJECT),
        (filtered | (live & left_out)).alias(FILTERED),
    )


def _is_one(value: Column, values: Sequence[Value]) -> Column:
    """Never null: a value that is null is none of them."""
    return F.coalesce(value.isin(*values), false()) if values else false()


def _require_fit(frame: DataFrame, step: Route) -> None:
    record = StructType([field for field in frame.schema if field.name in data(frame)])
    found = type_at(record, step.column)
    kind = next((kind for each, kind in KINDS.items() if isinstance(found, each)), None)
    if kind is None:
        raise unusable(
            f'"{step.column}" is {found.simpleString()}, and records are routed by text, whole numbers and booleans alone'
        )
    for value in (*step.values, *step.named):
        if type(value) is not kind:
            raise unusable(
                f'"{step.column}" is {found.simpleString()}, so {json.dumps(value)} is no value of it'
            )
