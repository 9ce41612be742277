"""The step that masks: what is personal leaves the rows before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from calve.names import SYSTEM_COLUMN, quote
from calve.steps import Mask, Rule
from glue_jobs.steps.frame import beside, data, unusable
from glue_jobs.steps.mask_rules import Path, inside, is_dropped, paths, rules
from glue_jobs.steps.masked import masked
from glue_jobs.steps.tokens import token, with_key


def run_mask(
    frame: DataFrame, step: Mask, keys: Callable[[], DataFrame], tags: Mapping[str, tuple[str, ...]]
) -> DataFrame:
    """Mask fields by their paths and by their tags, and in `_kafka` the key and the headers.

    keys: gives `glue_jobs.steps.tokens.key_frame`, where something is hashed. tags: the tags of fields by path, as the schema has
    them. A struct without any field left is dropped. Keys of maps stay as they are.

    Raises:
        Suspended: there is no such field, or the rule cannot mask values of its type.
    """
    names = data(frame)
    columns = StructType([each for each in frame.schema.fields if each.name in names])
    found = rules(step, tags, columns)
    kept = [
        _field(F.col(quote(each.name)), each.dataType, inside(found, each.name), each.name).alias(each.name)
        for each in columns.fields
        if not is_dropped(each.dataType, inside(found, each.name))
    ]
    others = [
        _record(step).alias(name) if name == SYSTEM_COLUMN else F.col(quote(name)) for name in beside(frame)
    ]
    hashes = "hash" in (step.key, step.headers, *(rule.how for rule in found.values()))
    return (with_key(frame, keys()) if hashes else frame).select(*kept, *others)


def _field(value: Column, kind: DataType, found: Mapping[Path, Rule], path: str) -> Column:
    """A field that is not dropped, after the rules of it and of what is in it."""
    if not found:
        return value
    rule = found.get(())
    if rule is not None and rule.how == "null":
        return F.lit(None).cast(kind)
    match kind:
        case ArrayType():
            return F.transform(value, lambda each: _field(each, kind.elementType, found, path))
        case MapType():
            return F.transform_values(value, lambda _, each: _field(each, kind.valueType, found, path))
        case StructType() if rule is not None:
            fields = ", ".join(paths(kind, f"{path}."))
            raise unusable(
                f"{path} has fields: drop and null take it whole, {rule.how} needs one of {fields}"
            )
        case StructType():
            return F.when(value.isNotNull(), F.struct(*_fields(value, kind, found, path)))
    assert rule is not None  # noqa: S101 a path of `rules` leads to a field
    return masked(value, kind, rule, path)


def _fields(value: Column, kind: StructType, found: Mapping[Path, Rule], path: str) -> list[Column]:
    return [
        _field(value[each.name], each.dataType, inside(found, each.name), f"{path}.{each.name}").alias(
            each.name
        )
        for each in kind.fields
        if not is_dropped(each.dataType, inside(found, each.name))
    ]


def _record(step: Mask) -> Column:
    """`_kafka` with its key and the values of its headers masked; its type stays."""
    record = F.col(SYSTEM_COLUMN)
    if step.key != "keep":
        record = record.withField("key", _received(F.col(SYSTEM_COLUMN)["key"], step.key))
    if step.headers != "keep":
        headers = F.transform(
            F.col(SYSTEM_COLUMN)["headers"],
            lambda each: each.withField("value", _received(each["value"], step.headers)),
        )
        record = record.withField("headers", headers)
    return record


def _received(value: Column, how: str) -> Column:
    return (token(value) if how == "hash" else F.lit(None)).cast("binary")
