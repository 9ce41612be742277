"""Partition specs and sort orders of Iceberg, made of the transforms that the configuration names."""

from __future__ import annotations

from typing import Any

from calve.job import Transform


def partition_spec(iceberg: Any, schema: Any, transforms: tuple[Transform, ...]) -> Any:
    builder = iceberg.PartitionSpec.builderFor(schema)
    for each in transforms:
        method = getattr(builder, each.name)
        builder = method(each.column) if each.argument is None else method(each.column, each.argument)
    return builder.build()


def sort_order(iceberg: Any, schema: Any, transforms: tuple[Transform, ...]) -> Any:
    builder = iceberg.SortOrder.builderFor(schema)
    for each in transforms:
        term = _term(iceberg.expressions.Expressions, each)
        builder = builder.desc(term) if each.descending else builder.asc(term)
    return builder.build()


def _term(expressions: Any, each: Transform) -> Any:
    match each.name:
        case "identity":
            return expressions.ref(each.column)
        case "bucket":
            return expressions.bucket(each.column, each.argument)
        case "truncate":
            return expressions.truncate(each.column, each.argument)
        case name:
            return getattr(expressions, name)(each.column)
