"""Values that an update has left alone and that the database's log does not have: the row before has them.

As if events were applied one by one: a value comes from the row of the key as it was when the event was read.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import WindowSpec

from calve.changes import UNAVAILABLE
from calve.job import ChangeData
from calve.spark_conf import CATALOG
from glue_jobs.conditions import false
from glue_jobs.events import OP, TOMBSTONE
from glue_jobs.keys import OFFSET, PARTITION, at, key_columns, key_names, keys_of
from glue_jobs.target import Target

LIFE, COUNTS, HELD, HELD_ORDER, FILL = (
    f"calve:{each}" for each in ("life", "counts", "held", "held_order", "fill")
)


def lacks_values(rows: DataFrame) -> Column:
    """True for updates that lack a value of a column; never null."""
    lacking = reduce(Column.__or__, (_lacks(each) for each in _may_lack(rows)), false())
    return F.coalesce((at(OP) == "u") & lacking, false())


def filled(good: DataFrame, mode: ChangeData, target: Target) -> DataFrame:
    """The same rows, with the values that updates lack as the row before has them, in the batch or in the table.

    Where no row is known before, the value stays what Debezium has written. Reads the batch twice, and of the table the columns
    that may lack values, as main is now: a round that is published meanwhile makes this one lose.
    """
    columns = _may_lack(good)
    if not columns:
        return good
    names = key_names(mode.key)
    lacking = keys_of(good.where(lacks_values(good)), mode.key).distinct()
    held = target.lake.spark.table(target.name.quoted(CATALOG))
    order = at(mode.order_by) if mode.order_by else F.lit(None).cast("string")
    before = held.select(
        *key_columns(mode.key),
        F.struct(*(at(each.name).alias(each.name) for each in columns)).alias(HELD),
        order.alias(HELD_ORDER),
    ).join(F.broadcast(lacking), names, "left_semi")
    here = (
        Window.partitionBy(*names, at(PARTITION))
        .orderBy(at(OFFSET))
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    good = good.withColumns(dict(zip(names, (at(path) for path in mode.key), strict=True)))
    good = good.join(before, names, "left").withColumn(LIFE, F.count_if(F.col(TOMBSTONE)).over(here))
    good = good.withColumn(COUNTS, ~F.col(TOMBSTONE) & _newest_so_far(order, here))
    life = (
        Window.partitionBy(*names, at(PARTITION), LIFE)
        .orderBy(at(OFFSET))
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    found = {}
    for each in columns:
        known = F.when(F.col(COUNTS) & ~_lacks(each), F.struct(at(each.name).alias(FILL)))
        last = F.last(known, ignorenulls=True).over(life)
        of_table = F.when(
            (F.col(LIFE) == 0) & F.col(HELD).isNotNull(), F.struct(F.col(HELD)[each.name].alias(FILL))
        )
        value = F.coalesce(last, of_table, F.struct(at(each.name).alias(FILL)))
        found[each.name] = F.when(_lacks(each), value[FILL]).otherwise(at(each.name))
    return good.withColumns(found).drop(LIFE, COUNTS, HELD, HELD_ORDER, *names)


def _newest_so_far(order: Column, here: WindowSpec) -> Column:
    """True for changes that became the row of their key when they were read."""
    running = F.max(order).over(here)
    in_batch, in_table = (F.coalesce(order >= each, each.isNull()) for each in (running, F.col(HELD_ORDER)))
    return in_batch & in_table


def _may_lack(rows: DataFrame) -> list[T.StructField]:
    """The columns of types that Debezium writes its placeholder into."""
    return [each for each in rows.schema.fields if _placeholder(each.dataType) and ":" not in each.name]


def _lacks(column: T.StructField) -> Column:
    value = at(column.name)
    if isinstance(column.dataType, T.MapType):
        value = F.map_keys(value)
    return F.coalesce(value == F.lit(_placeholder(column.dataType)), false())


def _placeholder(kind: T.DataType) -> str | bytearray | list[str] | None:
    match kind:
        case T.StringType():
            return UNAVAILABLE
        case T.BinaryType():
            return bytearray(UNAVAILABLE.encode())
        case T.ArrayType(elementType=T.StringType()) | T.MapType(keyType=T.StringType()):
            return [UNAVAILABLE]
    return None
