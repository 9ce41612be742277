"""Partition specs and sort orders of Iceberg, made of the transforms that the configuration names."""

from __future__ import annotations

from typing import Any

from calve.config.job import Transform


def partition_spec(iceberg: Any, schema: Any, transforms: tuple[Transform, ...]) -> Any:
    builder = iceberg.PartitionSpec.builderFor(schema)
    for each in transforms:
        method = getattr(builder, each.name)
        builder = method(each.column) if each.argument is None else method(each.column, each.argument)
    return builder.build()


def sort_order(iceberg: Any, schema: Any, transforms: tuple[Transform, ...]) -> Any:
    return ordered(iceberg, iceberg.SortOrder.builderFor(schema), transforms).build()


def ordered(iceberg: Any, builder: Any, transforms: tuple[Transform, ...]) -> Any:
    """A builder of a sort order, or an update of a table's, with these fields; nulls lie where Iceberg has them by default."""
    nulls = iceberg.NullOrder
    for each in transforms:
        by = term(iceberg.expressions.Expressions, each)
        builder = (
            builder.desc(by, nulls.NULLS_LAST) if each.descending else builder.asc(by, nulls.NULLS_FIRST)
        )
    return builder


def term(expressions: Any, each: Transform) -> Any:
    match each.name:
        case "identity":
            return expressions.ref(each.column)
        case "bucket":
            return expressions.bucket(each.column, each.argument)
        case "truncate":
            return expressions.truncate(each.column, each.argument)
        case name:
            return getattr(expressions, name)(each.column)
