"""Plan a table's steps as operations on Arrow columns, on the driver.

Spark resolves each step on a frame without rows, as it does for the row engine. So an impossible step is refused with the
same message. A step whose result could differ from Spark's is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from calve.config.engine_choice import Unsupported
from calve.config.steps import Filter, Flatten, Lookup, Mask, Route, Rule, Sql, Step
from calve.names import quote
from calve.schema.columns import KAFKA, Json, struct
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.engines.columnar_steps.chain import (
    Change,
    Computation,
    Condition,
    Explosion,
    Fields,
    Flattening,
    Inside,
    Masking,
    Operation,
    Routing,
    Steps,
)
from glue_jobs.engines.columnar_steps.expression_planning import Planning, spelled
from glue_jobs.engines.columnar_steps.mask import MOST_DIGITS
from glue_jobs.transform.chain import Chain
from glue_jobs.transform.flatten import exploded, exploded_column, leaves, leaves_of_items
from glue_jobs.transform.mask import Path, inside, is_dropped, rules
from glue_jobs.transform.query import Query, understand, understand_condition
from glue_jobs.transform.row_columns import data
from glue_jobs.transform.types import spark_schema


def columnar_steps(chain: Chain, spark: SparkSession, source: Json, columns: Json) -> Steps:
    """The steps for records that are decoded to `source`, and a table with the data columns `columns`.

    Raises:
        Suspended: `step_unusable`, as in the row engine.
        Unsupported: the rows could differ from those of the row engine.
    """
    frame = spark.createDataFrame([], spark_schema(struct(*source["fields"], KAFKA)))
    chain = chain.with_any_keys(spark)
    of_records: list[Operation] = []
    of_rows: list[Operation] = []
    explosion = None
    for number, step in enumerate(chain.steps):
        place = chain.place(number, step)
        if isinstance(step, Lookup):
            raise Unsupported(f"{place} needs the row engine")
        made = chain.run(number, step, frame)
        (of_records if explosion is None else of_rows).extend(_operations(step, frame, chain, place))
        if isinstance(step, Flatten) and step.explode is not None:
            if explosion is not None:
                raise Unsupported(f"{place} explodes a list of rows that come from another list")
            with chain.naming(number, step):
                name = exploded_column(made, step)
                explosion, items = Explosion(name), made.withColumn(name, F.explode_outer(quote(name)))
                of_rows.append(Flattening(tuple(leaves_of_items(items, step, name))))
                made = exploded(made, step)
        frame = made
    return Steps(
        tuple(of_records),
        explosion,
        tuple(of_rows),
        tuple((each["name"], arrow_type(each["type"], fixed=False)) for each in source["fields"]),
        tuple((each["name"], arrow_type(each["type"])) for each in columns["fields"]),
    )


def _operations(step: Step, frame: DataFrame, chain: Chain, place: str) -> list[Operation]:
    """The operations of a step on the columns of a frame; place: its location in calve.yaml."""
    match step:
        case Route():
            path = spelled(frame, step.column.split("."))
            return [Routing(path, step.values, step.named, step.others)]
        case Flatten():
            return [Flattening(tuple(leaves(frame, step, chain.stay)))]
        case Mask():
            return [_masking(frame, step, chain.means.tags, place)]
        case Filter():
            query = Query(understand_condition(frame, step.condition), {})
        case Sql():
            query = understand(frame, step.query)
    planning = Planning(frame, place)
    found: list[Operation] = [] if query.condition is None else [Condition(planning.of(query.condition))]
    if query.columns:
        found.append(Computation(tuple((name, planning.of(each)) for name, each in query.columns.items())))
    return found


def _masking(frame: DataFrame, step: Mask, tags: Mapping[str, tuple[str, ...]], place: str) -> Masking:
    names = data(frame)
    columns = StructType([each for each in frame.schema.fields if each.name in names])
    found = rules(step, tags, columns)
    kept = tuple(
        (each.name, _change(each.dataType, inside(found, each.name), f"{place}: {each.name}"))
        for each in columns.fields
        if not is_dropped(each.dataType, inside(found, each.name))
    )
    return Masking(kept, step.key, step.headers)


def _change(kind: DataType, found: Mapping[Path, Rule], path: str) -> Change:
    """The change of a field that is not dropped, as in `glue_jobs.transform.mask`."""
    if not found:
        return None
    rule = found.get(())
    if rule is not None and rule.how == "null":
        return rule
    match kind:
        case ArrayType():
            return Inside(_change(kind.elementType, found, path))
        case MapType():
            return Inside(_change(kind.valueType, found, path))
        case StructType():
            return Fields(
                tuple(
                    (place, _change(each.dataType, inside(found, each.name), f"{path}.{each.name}"))
                    for place, each in enumerate(kind.fields)
                    if not is_dropped(each.dataType, inside(found, each.name))
                )
            )
        case DecimalType() if rule is not None and rule.how == "generalise" and kind.precision > MOST_DIGITS:
            raise Unsupported(f"{path} generalises decimals of more than {MOST_DIGITS} digits")
    return rule
