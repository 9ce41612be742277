"""Columns that steps name, and what is said where there is none of that name."""

from __future__ import annotations

from pyspark.sql.types import DataType, StructType

from calve.names import nearest
from glue_jobs.steps.frame import unusable


def type_at(record: StructType, path: str) -> DataType:
    """The type at a path of structs.

    Raises:
        Suspended: `step_unusable`, with what may have been meant.
    """
    found: DataType = record
    for depth, name in enumerate(path.split(".")):
        if not isinstance(found, StructType):
            raise unusable(f'"{".".join(path.split(".")[:depth])}" has no fields, so there is no "{path}"')
        found = type_of(found, name, "column of the record")
    return found


def type_of(columns: StructType, name: str, what: str) -> DataType:
    """The type of a column, in any case of letters. what: what it would be.

    Raises:
        Suspended: `step_unusable`, with what may have been meant.
    """
    by_lower = {field.name.lower(): field for field in columns}
    if name.lower() in by_lower:
        return by_lower[name.lower()].dataType
    near = nearest(name, columns.names)
    hint = f'did you mean "{near}"?' if near else f"there are {', '.join(columns.names)}"
    raise unusable(f'"{name}" is no {what}; {hint}')
