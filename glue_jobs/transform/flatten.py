"""The step `flatten`: structs become columns, list items become rows, map keys become columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.config.steps import Flatten, Leaf
from calve.names import field_problem, nearest, quote
from glue_jobs.transform.row_columns import beside, data, record, rejecting, unusable


def run_flatten(frame: DataFrame, step: Flatten, stay: Collection[str] = ()) -> DataFrame:
    """Turn structs into columns named by their path, except those of `stay`. The list to explode stays a list."""
    found = leaves(frame, step, stay)
    return _flattened(rejecting(frame, reads(found)), found)


def reads(found: Iterable[Leaf]) -> set[str]:
    """The maps whose keys become columns."""
    return {each.path[0] for each in found if each.key is not None}


def leaves(
    frame: DataFrame, step: Flatten, stay: Collection[str] = (), *, items: str | None = None
) -> list[Leaf]:
    """The columns that the step makes. items: the column with exploded items, if only that one is flattened."""
    if items is not None:
        stay = {*data(frame)} - {items}
    separator, inside = step.separator, f"{step.explode}."
    maps = {
        path.replace(".", separator): keys
        for path, keys in step.maps.items()
        if path.startswith(inside) == (items is not None)
    }
    found: list[Leaf] = []
    for each in record(frame).fields:
        if each.name in stay:
            found.append(Leaf(each.name, (each.name,), each.name))
        else:
            found += _leaves(each.dataType, (each.name,), separator, maps)
    names = [each.name for each in found]
    for name, keys in maps.items():
        if any(f"{name}{separator}{key}" not in names for key in keys):
            raise unusable(f"{name} is no map with keys of text{_hint(name, names)}")
    first: dict[str, str] = {}
    for leaf in found:
        other = first.setdefault(leaf.name.lower(), leaf.shown)
        if other != leaf.shown:
            raise unusable(
                f"{other} and {leaf.shown} would both be the column {leaf.name}: use another `separator`"
            )
    return found


def _flattened(frame: DataFrame, found: Iterable[Leaf]) -> DataFrame:
    return frame.select(*(_value(each).alias(each.name) for each in found), *map(quote, beside(frame)))


def _value(leaf: Leaf) -> Column:
    value = reduce(lambda above, name: above[name], leaf.path[1:], F.col(quote(leaf.path[0])))
    if leaf.key is not None:
        return F.try_element_at(value, F.lit(leaf.key))
    return F.map_filter(value, lambda key, _: ~key.isin(*leaf.without)) if leaf.without else value


def exploded(frame: DataFrame, step: Flatten) -> DataFrame:
    """A row for each item of the list. The list's column then holds items, flattened if they are structs.

    A record whose list is empty or null makes one row with a null item.
    """
    if step.explode is None:
        return frame
    items, found = with_items(frame, step)
    return _flattened(items, found)


def with_items(frame: DataFrame, step: Flatten) -> tuple[DataFrame, list[Leaf]]:
    """A row for each item, which is whole in the list's column, and the columns that the step makes of it."""
    name = exploded_column(frame, step)
    items = frame.withColumn(name, F.explode_outer(quote(name)))
    return items, leaves(items, step, items=name)


def exploded_column(frame: DataFrame, step: Flatten) -> str:
    """The column of the list to explode. Raises Suspended: it does not exist."""
    path = str(step.explode)
    name = path.replace(".", step.separator)
    kinds = {each.name: each.dataType for each in record(frame).fields}
    if name not in kinds:
        raise unusable(f"there is no column {path} to explode{_hint(name, kinds)}")
    if not isinstance(kinds[name], T.ArrayType):
        shown = kinds[name].simpleString().split("<")[0]
        raise unusable(f"{path} is a {shown}, and only a list can be exploded")
    return name


def _leaves(
    kind: T.DataType, path: tuple[str, ...], separator: str, maps: Mapping[str, Sequence[str]]
) -> Iterator[Leaf]:
    name, shown = separator.join(path), ".".join(path)
    if isinstance(kind, T.StructType):
        for each in kind.fields:
            yield from _leaves(each.dataType, (*path, each.name), separator, maps)
    elif name in maps and isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        keys = maps[name]
        yield Leaf(name, path, shown, without=tuple(keys))
        for key in keys:
            made = f"{name}{separator}{key}"
            if problem := field_problem(made):
                raise unusable(f"the key {key} of {shown} cannot become a column: {problem}")
            yield Leaf(made, path, f"{shown}{{{key}}}", key=key)
    else:
        yield Leaf(name, path, shown)


def _hint(name: str, known: Collection[str]) -> str:
    near = nearest(name, [each for each in known if each != name], cutoff=0.7)
    return f"; did you mean {near}?" if near else ""
