"""Structs become columns, a list makes a row of each item, keys of maps become columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.names import SYSTEM_COLUMN, field_problem, quote
from calve.steps import Flatten
from glue_jobs.steps.frame import beside, data, unusable


def run_flatten(frame: DataFrame, step: Flatten, stay: Collection[str] = ()) -> DataFrame:
    """Structs as columns named by their path; those of `stay` remain as they are. The list that is exploded is left a list."""
    return _flattened(frame, step.separator, _maps(step, in_items=False), stay)


def _flattened(
    frame: DataFrame, separator: str, maps: Mapping[str, Sequence[str]], stay: Collection[str]
) -> DataFrame:
    found: list[tuple[str, Column, str]] = []
    for each in frame.schema.fields:
        if each.name == SYSTEM_COLUMN or ":" in each.name:
            continue
        if each.name in stay:
            found.append((each.name, F.col(quote(each.name)), each.name))
        else:
            found += _leaves(each, F.col(quote(each.name)), (each.name,), separator, maps)
    _require_maps(separator, maps, [name for name, _, _ in found])
    _require_distinct(found)
    return frame.select(*(column.alias(name) for name, column, _ in found), *map(quote, beside(frame)))


def exploded(frame: DataFrame, step: Flatten) -> DataFrame:
    """A row for each item of the list, which becomes a column of items, and is flattened if they are structs.

    A record whose list is empty or null makes one row, in which the item is null.
    """
    if step.explode is None:
        return frame
    name = _column(step.explode, step)
    kinds = {each.name: each.dataType for each in frame.schema.fields if each.name in data(frame)}
    if name not in kinds:
        raise unusable(f"there is no column {step.explode} to explode{_hint(name, kinds)}")
    if not isinstance(kinds[name], T.ArrayType):
        raise unusable(f"{step.explode} is a {_shown(kinds[name])}, and only a list can be exploded")
    items = frame.withColumn(name, F.explode_outer(quote(name)))
    return _flattened(items, step.separator, _maps(step, in_items=True), kinds.keys() - {name})


def _leaves(
    field: T.StructField,
    value: Column,
    path: tuple[str, ...],
    separator: str,
    maps: Mapping[str, Sequence[str]],
) -> Iterator[tuple[str, Column, str]]:
    name, shown = separator.join(path), ".".join(path)
    if isinstance(field.dataType, T.StructType):
        for each in field.dataType.fields:
            yield from _leaves(each, value[each.name], (*path, each.name), separator, maps)
    elif name in maps and _has_texts(field.dataType):
        keys = maps[name]
        yield name, F.map_filter(value, lambda key, _: ~key.isin(*keys)), shown
        for key in keys:
            made = f"{name}{separator}{key}"
            if problem := field_problem(made):
                raise unusable(f"the key {key} of {shown} cannot become a column: {problem}")
            yield made, F.try_element_at(value, F.lit(key)), f"{shown}{{{key}}}"
    else:
        yield name, value, shown


def _maps(step: Flatten, *, in_items: bool) -> dict[str, tuple[str, ...]]:
    """The columns whose keys become columns: those of the record, or those of the items of the list that is exploded."""
    inside = f"{step.explode}."
    return {
        _column(path, step): keys for path, keys in step.maps.items() if path.startswith(inside) == in_items
    }


def _has_texts(kind: T.DataType) -> bool:
    return isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType)


def _require_maps(separator: str, maps: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    for name, keys in maps.items():
        if any(f"{name}{separator}{key}" not in names for key in keys):
            raise unusable(f"{name} is no map with keys of text{_hint(name, names)}")


def _require_distinct(found: Sequence[tuple[str, Column, str]]) -> None:
    first: dict[str, str] = {}
    for name, _, path in found:
        other = first.setdefault(name.lower(), path)
        if other != path:
            raise unusable(f"{other} and {path} would both be the column {name}: use another `separator`")


def _column(path: str, step: Flatten) -> str:
    return path.replace(".", step.separator)


def _hint(name: str, known: Collection[str]) -> str:
    near = [each for each in get_close_matches(name, known, n=1, cutoff=0.7) if each != name]
    return f"; did you mean {near[0]}?" if near else ""


def _shown(kind: T.DataType) -> str:
    return kind.simpleString().split("<")[0]
