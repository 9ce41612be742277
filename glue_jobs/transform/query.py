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
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.types import StructField, StructType

from calve.config.steps import UNMET, Expect, Filter, Sql
from calve.names import SYSTEM_COLUMN
from glue_jobs.columns.expressions import FILTERED, TOMBSTONE, false
from glue_jobs.process.java import elements
from glue_jobs.transform.query_rules import (
    SOURCE,
    Node,
    kind,
    nodes,
    query_errors,
    require_own,
    require_same_always,
    require_select,
    require_shape,
)
from glue_jobs.transform.row_columns import (
    LACKS_VALUE,
    data,
    is_live,
    lacking,
    rejecting,
    remade,
    system,
    unusable,
)
from glue_jobs.transform.types import iceberg_columns

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
    """condition: of WHERE. columns: the select list in order; name -> a column of the frame, or an expression.

    condition_reads, reads: the columns that the condition and the expressions read.
    """

    condition: Column | None
    columns: dict[str, str | Column]
    condition_reads: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()


def understand(frame: DataFrame, text: str) -> Query:
    """Resolve a query on the columns of a frame. Raises Suspended: `step_unusable`, with the problem and its place."""
    names, logical = data(frame), _catalyst(frame).plans.logical
    with _ansi_rules(frame.sparkSession) as ansi:
        with query_errors(names):
            parsed = ansi.sessionState().sqlParser().parsePlan(text)
        plan = nodes(parsed)
        require_select(plan)
        require_own(plan, text)
        select = plan[0]["projectList"]
        own = system(frame)
        named = _named(select, own)
        filtered = kind(plan[1]) == "Filter"
        aliased = kind(plan[-2]) == "SubqueryAlias"
        source = _source(frame, str(plan[-2]["identifier"]["name"]) if aliased else SOURCE)
        if filtered:
            source = logical.Filter(parsed.child().condition(), source)
        with query_errors(names, [column[0]["name"] for column in select if kind(column[0]) == "Alias"]):
            row = _seq(frame, _row(frame, parsed.projectList()))
            analysed = _analysed(frame, ansi, logical.Project(row, source))
    resolved = nodes(analysed)
    require_shape(resolved, ["Project", *["Filter"] * filtered, *SOURCE_NODES])
    row = analysed.projectList().head().child()
    condition = analysed.child().condition() if filtered else None
    require_same_always(resolved, [each for each in (row, condition) if each is not None])
    fields: Iterable[StructField] = StructType.fromJson(json.loads(row.dataType().json()))
    if named < len(select):  # a star also brings the system columns, which are ignored
        fields = (each for each in fields if each.name not in own)
    if not (made := StructType(list(fields))).names:
        raise unusable("the query makes no column")
    iceberg_columns(made, "the query")  # refuses names and types that no table has
    columns: dict[str, str | Column] = {}
    values = {
        str(name.value()): value
        for name, value in zip(elements(row.nameExprs()), elements(row.valExprs()), strict=True)
    }
    for name, value in values.items():
        as_it_is = value.getClass().getSimpleName() == "AttributeReference"
        columns[name] = str(value.name()) if as_it_is else _column(frame, value)
    columns = {name: value for name, value in columns.items() if name not in own}
    reads = _reads(value for name, value in values.items() if isinstance(columns.get(name), Column))
    found = Query(None, columns, reads=reads)
    if condition is None:
        return found
    return replace(found, condition=_column(frame, condition), condition_reads=_reads([condition]))


def understand_condition(frame: DataFrame, text: str) -> Query:
    """Resolve a boolean expression on the columns of a frame, as a query of no columns. Raises Suspended as `understand`."""
    with _ansi_rules(frame.sparkSession) as ansi, query_errors(data(frame)):
        parsed = ansi.sessionState().sqlParser().parseExpression(text)
        require_own(nodes(parsed), text)
        filtered = _catalyst(frame).plans.logical.Filter(parsed, _source(frame, SOURCE))
        analysed = _analysed(frame, ansi, filtered)
    resolved = nodes(analysed)
    require_shape(resolved, ["Filter", *SOURCE_NODES])
    condition = analysed.condition()
    require_same_always(resolved, [condition])
    return Query(_column(frame, condition), {}, condition_reads=_reads([condition]))


def paths_read(frame: DataFrame, value: Column) -> tuple[frozenset[str], bool]:
    """The paths of columns and of fields of structs that a resolved expression reads, and whether it is just such a path."""
    tree = nodes(_expression(frame, value))
    found, fields = set(), list[str]()
    for node in tree:
        match kind(node):
            case "GetStructField":
                fields.append(str(node["name"]))
                continue
            case "AttributeReference":
                found.add(".".join([str(node["name"]), *reversed(fields)]))
        fields.clear()
    return frozenset(found), {kind(each) for each in tree} <= {"GetStructField", "AttributeReference"}


def _reads(trees: Iterable[Any]) -> frozenset[str]:
    """The columns that expressions read."""
    return frozenset(str(each.name()) for tree in trees for each in elements(tree.references()))


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


def _jvm(frame: DataFrame) -> Any:
    return frame.sparkSession._jvm


def _catalyst(frame: DataFrame) -> Any:
    return _jvm(frame).org.apache.spark.sql.catalyst


def _seq(frame: DataFrame, *elements: Any) -> Any:
    return _to_seq(frame.sparkSession.sparkContext, elements)


def _source(frame: DataFrame, alias: str) -> Any:
    """An empty table with exactly the frame's data columns and system columns."""
    catalyst, nothing, streaming = _catalyst(frame), _seq(frame), False
    output = frame.select(*data(frame), *system(frame))._jdf.logicalPlan().output()
    empty = catalyst.plans.logical.LocalRelation(output, nothing, streaming, _jvm(frame).scala.Option.empty())
    return catalyst.plans.logical.SubqueryAlias(catalyst.AliasIdentifier(alias, nothing), empty)


def _row(frame: DataFrame, columns: Any) -> Any:
    """A select list as one struct: anything that is not an expression of one record cannot be resolved in it."""
    analysis, none = _catalyst(frame).analysis, _jvm(frame).scala.Option.empty()
    distinct = ignores_nulls = internal = False
    struct = analysis.UnresolvedFunction(
        _seq(frame, "struct"), columns, distinct, none, ignores_nulls, _seq(frame), internal
    )
    return analysis.UnresolvedAlias(struct, none)


def _analysed(frame: DataFrame, ansi: Any, plan: Any) -> Any:
    return _jvm(frame).org.apache.spark.sql.classic.Dataset.ofRows(ansi, plan).queryExecution().analyzed()


def _column(frame: DataFrame, expression: Any) -> Column:
    return Column(_jvm(frame).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _expression(frame: DataFrame, value: Any) -> Any:
    return _jvm(frame).org.apache.spark.sql.classic.ExpressionUtils.expression(value._jc)


def _named(select: list[list[Node]], own: Collection[str]) -> int:
    """The number of named columns of a select list; the others are stars. own: the system columns.

    Columns without a name, and system columns, are refused.
    """
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
    for name in (each for each in own if each in map(str.lower, names)):
        raise unusable(f"{name} stays by itself: select its fields, or leave it out")
    return len(names)


FAILED = "step_failed"
KEPT = "calve:kept"
COMPUTED = "calve:computed"


def run_sql(frame: DataFrame, step: Sql) -> DataFrame:
    """Compute the select list. Filter rows for which WHERE is not true; reject rows for which either fails.

    Raises Suspended: `step_unusable`.
    """
    query = understand(frame, step.query)
    frame = rejecting(frame, query.condition_reads)
    judged, wanted, reject, filtered = _judged(frame, query.condition)
    computed = {name: value for name, value in query.columns.items() if isinstance(value, Column)}
    if computed:
        lost = lacking(frame, query.reads)
        asked = wanted & ~lost
        attempt = _attempt(judged, asked, [value.alias(name) for name, value in computed.items()])
        if (keyed := _only_keys(frame, filtered)) is not None:
            attempt = F.when(keyed, _each_alone(judged, keyed, computed)).otherwise(attempt)
        judged = judged.withColumn(COMPUTED, attempt)
        failed = F.when(asked & F.col(COMPUTED).isNull(), F.lit(FAILED)).when(
            wanted & lost, F.lit(LACKS_VALUE)
        )
        reject = failed if reject is None else F.coalesce(reject, failed)
    columns = [
        (F.col(COMPUTED)[name] if isinstance(value, Column) else F.col(value)).alias(name)
        for name, value in query.columns.items()
    ]
    return remade(frame, judged, columns, reject=reject, filtered=filtered)


def run_filter(frame: DataFrame, step: Filter) -> DataFrame:
    """Filter rows for which the condition is not true; reject rows for which it fails. Raises Suspended: `step_unusable`."""
    query = understand_condition(frame, step.condition)
    frame = rejecting(frame, query.condition_reads)
    judged, _, reject, filtered = _judged(frame, query.condition)
    return remade(frame, judged, data(frame), reject=reject, filtered=filtered)


def run_expect(frame: DataFrame, step: Expect) -> DataFrame:
    """As `run_filter`, but rows for which the condition is not true are rejected, unless the step drops them."""
    if step.drop:
        return run_filter(frame, Filter(step.condition))
    query = understand_condition(frame, step.condition)
    frame = rejecting(frame, query.condition_reads)
    judged, _, reject, unmet = _judged(frame, query.condition)
    assert reject is not None and unmet is not None  # noqa: PT018, S101 there is a condition
    return remade(frame, judged, data(frame), reject=F.coalesce(reject, F.when(unmet, F.lit(UNMET))))


def _judged(
    frame: DataFrame, condition: Column | None
) -> tuple[DataFrame, Column, Column | None, Column | None]:
    """The frame with the result of `condition`, the rows that go on, and `reject` and `filtered` as in `remade`."""
    live = is_live(frame)
    if condition is None:
        return frame, live, None, None
    said = F.coalesce(F.col(KEPT)["is"], false())
    failed = live & F.col(KEPT).isNull()
    return (
        frame.withColumn(KEPT, _attempt(frame, live, [condition.alias("is")])),
        live & said,
        F.when(failed, F.lit(FAILED)),
        live & ~failed & ~said,
    )


def _attempt(frame: DataFrame, wanted: Column, values: list[Column]) -> Column:
    """A struct of the values for wanted rows; null for other rows, and if one of the values fails."""
    record = F.col(SYSTEM_COLUMN)["offset"] >= 0  # always true, but Spark does not know that
    branch: Any = F.when(wanted & record, F.struct(*values))
    return _column(frame, _catalyst(frame).expressions.TryEval(_expression(frame, branch)))


def _only_keys(frame: DataFrame, filtered: Column | None) -> Column | None:
    """True for rows that delete: only their keys matter. None: no row deletes. filtered: those that this step filters."""
    if TOMBSTONE not in frame.columns:
        return None
    before = [F.col(name) for name in (TOMBSTONE, FILTERED) if name in frame.columns]
    return reduce(Column.__or__, before if filtered is None else [*before, filtered])


def _each_alone(frame: DataFrame, wanted: Column, computed: dict[str, Column]) -> Column:
    """A struct of the values for wanted rows, as `_attempt`; a value that fails is null."""
    return F.struct(
        *(_attempt(frame, wanted, [each.alias("is")])["is"].alias(name) for name, each in computed.items())
    )
