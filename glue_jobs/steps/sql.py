"""The steps `sql` and `filter`: expressions of Spark SQL, each computed of one record, whose failure is a reject of that record.

Under ANSI's rules a failing expression would end the batch. `TryEval` makes null of it: of a struct, which is never null by
itself. Spark computes what expressions share before it computes any of them, also outside of what tries them, but not what only
a branch of a CASE needs. So everything tried is in a branch, whose condition Spark cannot know to be true.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.names import SYSTEM_COLUMN
from calve.steps import Filter, Sql
from glue_jobs.decode import REJECT
from glue_jobs.events import TOMBSTONE
from glue_jobs.shapes import false
from glue_jobs.steps.frame import FILTERED, beside, data, is_live
from glue_jobs.steps.query import understand, understand_condition

FAILED = "step_failed"
KEPT = "calve:kept"
COMPUTED = "calve:computed"


def run_sql(frame: DataFrame, step: Sql) -> DataFrame:
    """The columns of the select list; rows for which WHERE is not true are filtered, those on which either fails rejected.

    Raises:
        Suspended: `step_unusable`.
    """
    query = understand(frame, step.query)
    names = [name for name in beside(frame) if name not in (REJECT, FILTERED)]
    judged, wanted, marks = _judged(frame, query.condition)
    computed = {name: value for name, value in query.columns.items() if isinstance(value, Column)}
    if computed:
        attempt = _attempt(judged, wanted, [value.alias(name) for name, value in computed.items()])
        failed = wanted & F.col(COMPUTED).isNull()
        marks[REJECT] = F.coalesce(marks[REJECT], F.when(failed, F.lit(FAILED)))
        judged = judged.withColumn(COMPUTED, _of_tombstones_too(judged, attempt, computed))
    columns = [
        (F.col(COMPUTED)[name] if isinstance(value, Column) else F.col(value)).alias(name)
        for name, value in query.columns.items()
    ]
    return judged.select(*columns, *names, *(mark.alias(name) for name, mark in marks.items()))


def run_filter(frame: DataFrame, step: Filter) -> DataFrame:
    """Rows for which the condition is not true are filtered, those on which it fails rejected.

    Raises:
        Suspended: `step_unusable`.
    """
    names = [name for name in beside(frame) if name not in (REJECT, FILTERED)]
    judged, _, marks = _judged(frame, understand_condition(frame, step.condition))
    return judged.select(*data(frame), *names, *(mark.alias(name) for name, mark in marks.items()))


def _judged(frame: DataFrame, condition: Column | None) -> tuple[DataFrame, Column, dict[str, Column]]:
    """The frame with what `condition` says, which rows go on, and its new `REJECT` and `FILTERED`."""
    live = is_live(frame)
    reject = F.col(REJECT) if REJECT in frame.columns else F.lit(None).cast("string")
    filtered = F.col(FILTERED) if FILTERED in frame.columns else false()
    if condition is None:
        return frame, live, {REJECT: reject, FILTERED: filtered}
    said = F.coalesce(F.col(KEPT)["is"], false())
    failed = live & F.col(KEPT).isNull()
    return (
        frame.withColumn(KEPT, _attempt(frame, live, [condition.alias("is")])),
        live & said,
        {
            REJECT: F.coalesce(reject, F.when(failed, F.lit(FAILED))),
            FILTERED: filtered | (live & ~failed & ~said),
        },
    )


def _attempt(frame: DataFrame, wanted: Column, values: list[Column]) -> Column:
    """A struct of the values on rows that want them; null on others, and where one of them fails."""
    record = F.col(SYSTEM_COLUMN)["offset"] >= 0  # of every one; only Spark does not know it
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    branch: Any = F.when(wanted & record, F.struct(*values))
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(branch._jc))
    return Column(expressions.column(tried))


def _of_tombstones_too(frame: DataFrame, attempt: Column, computed: dict[str, Column]) -> Column:
    """Of a tombstone, of which only the key is there, every column that can be computed, each for itself."""
    if TOMBSTONE not in frame.columns:
        return attempt
    tombstone = F.col(TOMBSTONE)
    alone = [
        _attempt(frame, tombstone, [value.alias("is")])["is"].alias(name) for name, value in computed.items()
    ]
    return F.when(tombstone, F.struct(*alone)).otherwise(attempt)
