"""Queries of the steps `sql` and `filter`: Spark parses them and resolves them on the existing columns.

A separate session with ANSI rules resolves them, so that an overflow, a bad cast or a division by zero is an error.
This behaviour is fixed in the resulting expressions. The job's session, shared by many tables, does not change.
The expressions refer to the frame's own columns, so the frame can use them.

Each expression is computed per record, and a failure rejects the record. Plain ANSI rules would fail the batch.
So `TryEval` turns a failure into null: the value is in a struct, which is otherwise never null.
Spark computes shared subexpressions first, even outside of `TryEval`, but not those that only a branch of a CASE needs.
So each tried expression is in a branch whose condition Spark cannot know to be true.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from calve.config.steps import Filter, Sql
from calve.names import SYSTEM_COLUMN, field_problem
from glue_jobs.columns.expressions import false
from glue_jobs.columns.helpers import FILTERED, REJECT, TOMBSTONE
from glue_jobs.process.java import elements
from glue_jobs.transform.query_errors import Node, children, kind, nodes, query_errors
from glue_jobs.transform.query_rules import (
    SOURCE,
    require_own,
    require_same_always,
    require_select,
    require_shape,
)
from glue_jobs.transform.row_columns import beside, data, is_live, unusable

RULES = {
    "spark.sql.ansi.enabled": "true",
    # A product of decimals keeps all digits, or is an error.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.session.timeZone": "UTC",
    # "${env:NAME}" and "${spark.name}" in a text are not replaced.
    "spark.sql.variable.substitute": "false",
}
SOURCE_NODES = ("SubqueryAlias", "LocalRelation")


@dataclass(frozen=True, slots=True)
class Query:
    """condition: of WHERE. columns: the select list in order; name -> a column of the frame, or an expression."""

    condition: Column | None
    columns: dict[str, str | Column]


def understand(frame: DataFrame, text: str) -> Query:
    """Resolve a query on the columns of a frame. Raises Suspended: `step_unusable`, with the problem and its place."""
    names = data(frame)
    with _ansi_rules(frame.sparkSession) as ansi:
        with query_errors(names):
            parsed = ansi.sessionState().sqlParser().parsePlan(text)
        plan = nodes(parsed)
        require_select(plan)
        require_own(plan, text)
        select = plan[0]["projectList"]
        named = _named(select)
        filtered = kind(plan[1]) == "Filter"
        source = _source(frame, _alias(plan))
        if filtered:
            source = _catalyst(frame).plans.logical.Filter(parsed.child().condition(), source)
        with query_errors(names, [column[0]["name"] for column in select if kind(column[0]) == "Alias"]):
            analysed = _analysed(frame, ansi, _selected(frame, parsed.projectList(), source))
    resolved = nodes(analysed)
    require_shape(resolved, ["Project", *["Filter"] * filtered, *SOURCE_NODES])
    row = analysed.projectList().head().child()
    condition = analysed.child().condition() if filtered else None
    require_same_always(resolved, [each for each in (row, condition) if each is not None])
    struct = StructType.fromJson(json.loads(row.dataType().json()))
    require_columns(struct, from_stars=named < len(select))
    return Query(
        None if condition is None else _column(frame, condition),
        _columns(frame, row, resolved[0]["projectList"][0]),
    )


def understand_condition(frame: DataFrame, text: str) -> Column:
    """Resolve a boolean expression on the columns of a frame. Raises Suspended as `understand`."""
    with _ansi_rules(frame.sparkSession) as ansi, query_errors(data(frame)):
        parsed = ansi.sessionState().sqlParser().parseExpression(text)
        require_own(nodes(parsed), text)
        source = _source(frame, SOURCE)
        analysed = _analysed(frame, ansi, _catalyst(frame).plans.logical.Filter(parsed, source))
    resolved = nodes(analysed)
    require_shape(resolved, ["Filter", *SOURCE_NODES])
    condition = analysed.condition()
    require_same_always(resolved, [condition])
    return _column(frame, condition)


@lru_cache(maxsize=1)
def _ansi_session(spark: SparkSession) -> Any:
    session = spark.newSession()
    for name, value in RULES.items():
        session.conf.set(name, value)
    return session._jsparkSession


@contextmanager
def _ansi_rules(spark: SparkSession) -> Iterator[Any]:
    """The session with ANSI rules, active in this thread: new expressions use the active session."""
    sessions: Any = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    ansi = _ansi_session(spark)
    sessions.setActiveSession(ansi)
    try:
        yield ansi
    finally:
        sessions.setActiveSession(spark._jsparkSession)


def _catalyst(frame: DataFrame) -> Any:
    return frame.sparkSession._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]


def _seq(frame: DataFrame, *elements: Any) -> Any:
    return _to_seq(frame.sparkSession.sparkContext, elements)


def _none(frame: DataFrame) -> Any:
    return frame.sparkSession._jvm.scala.Option.empty()  # type: ignore[union-attr]


def _source(frame: DataFrame, alias: str) -> Any:
    """An empty table with exactly the frame's columns, except calve's own."""
    catalyst, nothing, streaming = _catalyst(frame), _seq(frame), False
    output = frame.select(*data(frame), SYSTEM_COLUMN)._jdf.logicalPlan().output()
    empty = catalyst.plans.logical.LocalRelation(output, nothing, streaming, _none(frame))
    return catalyst.plans.logical.SubqueryAlias(catalyst.AliasIdentifier(alias, nothing), empty)


def _selected(frame: DataFrame, columns: Any, source: Any) -> Any:
    """A select list as one struct: anything that is not an expression of one record cannot be resolved in it."""
    catalyst = _catalyst(frame)
    distinct = ignores_nulls = internal = False
    name, order, condition = _seq(frame, "struct"), _seq(frame), _none(frame)
    struct = catalyst.analysis.UnresolvedFunction(
        name, columns, distinct, condition, ignores_nulls, order, internal
    )
    named = catalyst.analysis.UnresolvedAlias(struct, _none(frame))
    return catalyst.plans.logical.Project(_seq(frame, named), source)


def _analysed(frame: DataFrame, ansi: Any, plan: Any) -> Any:
    datasets: Any = frame.sparkSession._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]
    return datasets.ofRows(ansi, plan).queryExecution().analyzed()


def _column(frame: DataFrame, expression: Any) -> Column:
    expressions: Any = frame.sparkSession._jvm.org.apache.spark.sql.classic.ExpressionUtils  # type: ignore[union-attr]
    return Column(expressions.column(expression))


def _alias(plan: list[Node]) -> str:
    """The source's name in a parsed query."""
    return str(plan[-2]["identifier"]["name"]) if kind(plan[-2]) == "SubqueryAlias" else SOURCE


def _named(select: list[list[Node]]) -> int:
    """The number of named columns of a select list; the others are stars. Columns without a name, and `_kafka`, are refused."""
    names = []
    for position, column in enumerate(select, 1):
        match kind(column[0]):
            case "UnresolvedStar" | "UnresolvedStarExceptOrReplace":
                continue
            case "Alias":
                names.append(str(column[0]["name"]))
            case "UnresolvedAttribute":
                names.append(column[0]["nameParts"].strip("[]").rsplit(", ", 1)[-1])
            case _:
                raise unusable(f'column {position} of the query has no name: write "... as name"')
    if SYSTEM_COLUMN in map(str.lower, names):
        raise unusable(f"{SYSTEM_COLUMN} stays by itself: select its fields, or leave it out")
    return len(names)


def _columns(frame: DataFrame, row: Any, select: list[Node]) -> dict[str, str | Column]:
    """The columns of the resolved struct: an Alias of a list of names and values."""
    places = children(select, 1)
    values = list(elements(row.valExprs()))
    found: dict[str, str | Column] = {}
    for name, place, value in zip(places[::2], places[1::2], values, strict=True):
        as_it_is = kind(select[place]) == "AttributeReference"
        found[select[name]["value"]] = select[place]["name"] if as_it_is else _column(frame, value)
    found.pop(SYSTEM_COLUMN, None)
    return found


PLAIN = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    TimestampNTZType,
    TimestampType,
)


def require_columns(row: StructType, *, from_stars: bool) -> None:
    """Refuse names and types that no table has. `from_stars`: `_kafka` occurs once and is ignored.

    Raises Suspended: `step_unusable`.
    """
    named = [field for field in row if not (from_stars and field.name == SYSTEM_COLUMN)]
    if not named:
        raise unusable("the query makes no column")
    _require_distinct([field.name for field in named], "the query")
    for field in named:
        _require_name(field.name, field.name)
        _require_storable(field.dataType, field.name)


def _require_name(name: str, path: str) -> None:
    if problem := field_problem(path):
        raise unusable(problem)
    if "." in name:
        raise unusable(f'"{path}" has a dot in a name')


def _require_distinct(names: list[str], where: str) -> None:
    for name, count in Counter(name.lower() for name in names).items():
        if count > 1:
            raise unusable(f'{where} makes "{name}" {count} times; leave the other out by * except ({name})')


def _require_storable(type_: DataType, path: str) -> None:
    match type_:
        case StructType():
            _require_distinct(type_.names, f'"{path}"')
            for field in type_:
                _require_name(field.name, f"{path}.{field.name}")
                _require_storable(field.dataType, f"{path}.{field.name}")
        case ArrayType():
            _require_storable(type_.elementType, path)
        case MapType():
            _require_storable(type_.keyType, path)
            _require_storable(type_.valueType, path)
        case NullType():
            raise unusable(f'"{path}" is always null and has no type: cast(null as string) has one')
        case StringType():
            if not type_.isUTF8BinaryCollation():
                raise unusable(f'"{path}" has a collation, which no table keeps: collate it as utf8_binary')
        case _ if not isinstance(type_, PLAIN):
            raise unusable(f'"{path}" is {type_.simpleString()}, which no table has')


FAILED = "step_failed"
KEPT = "calve:kept"
COMPUTED = "calve:computed"


def run_sql(frame: DataFrame, step: Sql) -> DataFrame:
    """Compute the select list. Filter rows for which WHERE is not true; reject rows for which either fails.

    Raises Suspended: `step_unusable`.
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
    """Filter rows for which the condition is not true; reject rows for which it fails. Raises Suspended: `step_unusable`."""
    names = [name for name in beside(frame) if name not in (REJECT, FILTERED)]
    judged, _, marks = _judged(frame, understand_condition(frame, step.condition))
    return judged.select(*data(frame), *names, *(mark.alias(name) for name, mark in marks.items()))


def _judged(frame: DataFrame, condition: Column | None) -> tuple[DataFrame, Column, dict[str, Column]]:
    """The frame with the result of `condition`, the rows that go on, and its new `REJECT` and `FILTERED`."""
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
    """A struct of the values for wanted rows; null for other rows, and if one of the values fails."""
    record = F.col(SYSTEM_COLUMN)["offset"] >= 0  # always true, but Spark does not know that
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    branch: Any = F.when(wanted & record, F.struct(*values))
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(branch._jc))
    return Column(expressions.column(tried))


def _of_tombstones_too(frame: DataFrame, attempt: Column, computed: dict[str, Column]) -> Column:
    """For a tombstone, which has only a key: each column that can be computed, on its own."""
    if TOMBSTONE not in frame.columns:
        return attempt
    tombstone = F.col(TOMBSTONE)
    alone = [
        _attempt(frame, tombstone, [value.alias("is")])["is"].alias(name) for name, value in computed.items()
    ]
    return F.when(tombstone, F.struct(*alone)).otherwise(attempt)
