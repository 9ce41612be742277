"""Plan a table's steps as operations on Arrow columns, on the driver.

Spark resolves each step on a frame without rows, as it does for the row engine. So an impossible step is refused with the
same message. A step whose result could differ from Spark's is refused here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, DecimalType, MapType, StringType, StructType

from calve.config.engine_choice import Unsupported
from calve.config.steps import Expect, Filter, Flatten, Lookup, Mask, Route, Rule, Sql, Step, place
from calve.names import quote
from calve.schema.columns import KAFKA, Json, struct
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.engines.columnar_steps import chain as operations
from glue_jobs.engines.columnar_steps.chain import Change, Operation, Steps
from glue_jobs.engines.columnar_steps.expression_planning import Planning, spelled
from glue_jobs.engines.columnar_steps.mask import MOST_DIGITS, masked
from glue_jobs.transform.chain import Chain
from glue_jobs.transform.flatten import exploded, exploded_column, leaves, reads
from glue_jobs.transform.mask import Path, inside, is_dropped, rules
from glue_jobs.transform.query import understand, understand_condition
from glue_jobs.transform.row_columns import has_changes, record
from glue_jobs.transform.types import spark_schema


def columnar_steps(chain: Chain, spark: SparkSession, source: Json, columns: Json) -> Steps:
    """The steps for records that are decoded to `source`, and a table with the data columns `columns`.

    Raises Suspended: `step_unusable`, as in the row engine. Unsupported: the rows could differ from those of the row engine.
    """
    frame = spark.createDataFrame([], spark_schema(struct(*source["fields"], KAFKA)))
    chain = chain.with_any_keys(spark)
    of_records: list[tuple[int, Operation]] = []
    of_rows: list[tuple[int, Operation]] = []
    of_deletions: list[Operation] = []
    explosion = None
    for number, step in enumerate(chain.steps):
        where = place(chain.steps, number)
        if isinstance(step, Lookup):
            raise Unsupported(f"{where} needs the row engine")
        made = chain.run(number, step, frame)
        planned, deleting = _operations(step, frame, chain, where)
        (of_records if explosion is None else of_rows).extend((number, each) for each in planned)
        of_deletions += deleting
        if isinstance(step, Flatten) and step.explode is not None:
            if explosion is not None:
                raise Unsupported(f"{where} explodes a list of rows that come from another list")
            with chain.naming(number):
                name = exploded_column(made, step)
                explosion, items = name, made.withColumn(name, F.explode_outer(quote(name)))
                of_rows.append((number, partial(operations.flattened, leaves(items, step, items=name))))
                made = exploded(made, step)
        frame = made
    return Steps(
        tuple(of_records),
        explosion,
        tuple(of_rows),
        tuple(of_deletions),
        tuple((each["name"], arrow_type(each["type"], fixed=False)) for each in source["fields"]),
        tuple((each["name"], arrow_type(each["type"])) for each in columns["fields"]),
    )


def _operations(
    step: Step, frame: DataFrame, chain: Chain, where: str
) -> tuple[list[Operation], list[Operation]]:
    """The operations of a step on the columns of a frame, and those on records that delete; where: its location in calve.yaml."""

    def reading(names: Collection[str], operation: Operation) -> Operation:
        return partial(operations.available, names, operation) if has_changes(frame) and names else operation

    match step:
        case Route():
            path = spelled(frame, step.column.split("."))
            return [reading(path[:1], partial(operations.routed, path, step))], []
        case Flatten():
            found = leaves(frame, step, chain.stay)
            flattened: Operation = partial(operations.flattened, found)
            return [reading(reads(found), flattened)], [flattened]
        case Mask():
            columns = record(frame)
            kept = _fields(
                columns, rules(step, chain.means.tags, columns), f"{where}: ", changes=has_changes(frame)
            )
            changes = [(columns.names[number], change) for number, change in kept]
            masked_rows: Operation = partial(operations.masked_rows, changes, step)
            return [masked_rows], [masked_rows]
        case Filter() | Expect():
            query = understand_condition(frame, step.condition)
        case Sql():
            query = understand(frame, step.query)
    planning = Planning(frame, where)
    planned: list[Operation] = []
    deleting: list[Operation] = []
    if query.condition is not None:
        judge = operations.filtered if _drops(step) else operations.required
        planned.append(reading(query.condition_reads, partial(judge, planning.of(query.condition))))
    if query.columns:
        made = [(name, planning.of(each)) for name, each in query.columns.items()]
        planned.append(reading(query.reads, partial(operations.computed, made)))
        deleting.append(partial(operations.computed_alone, made))
    return planned, deleting


def _drops(step: Step) -> bool:
    """Whether a record for which the step's condition is not true is dropped, not rejected."""
    return step.drop if isinstance(step, Expect) else True


def _fields(
    kind: StructType, found: Mapping[Path, Rule], above: str, *, changes: bool
) -> list[tuple[int, Change]]:
    """The fields that are not dropped, by place, with the change of each. changes: they are of change events."""
    return [
        (place, _change(each.dataType, inside(found, each.name), f"{above}{each.name}", changes=changes))
        for place, each in enumerate(kind.fields)
        if not is_dropped(each.dataType, inside(found, each.name))
    ]


def _change(kind: DataType, found: Mapping[Path, Rule], path: str, *, changes: bool) -> Change:
    """The change of a field that is not dropped, as in `glue_jobs.transform.mask`."""
    rule = found.get(())
    if not found or (rule is not None and rule.how == "null"):
        return partial(masked, rule) if rule else operations.unchanged
    match kind:
        case ArrayType():
            return partial(operations.items_changed, _change(kind.elementType, found, path, changes=changes))
        case MapType():
            return partial(operations.items_changed, _change(kind.valueType, found, path, changes=changes))
        case StructType():
            return partial(operations.fields_changed, _fields(kind, found, f"{path}.", changes=changes))
        case DecimalType() if rule is not None and rule.how == "generalise" and kind.precision > MOST_DIGITS:
            raise Unsupported(f"{path} generalises decimals of more than {MOST_DIGITS} digits")
    assert rule is not None  # noqa: S101 a path of `rules` leads to a field
    leaf: Change = partial(masked, rule)
    may_lack = changes and isinstance(kind, StringType | BinaryType)
    return partial(operations.but_placeholders, leaf) if may_lack else leaf
