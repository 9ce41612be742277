"""One topic to many tables, by a value that its records hold.

Routes of tables that read the same records belong together: they say of each of these records which table it is for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from calve.config.steps import Value
from calve.settings import fields
from calve.settings.fields import Section
from calve.settings.problems import Invalid, InvalidParts, KeyPath, Problem

KINDS = {str: "text", int: "a whole number", bool: "true or false"}
LONG = range(-(2**63), 2**63)


def _values(raw: Any) -> tuple[Value, ...]:
    """One value, or a list of them."""
    found = _listed(raw)
    if not found:
        raise Invalid("is empty", "name a value, or remove it and use `otherwise: true`")
    problems = [problem for n in range(len(found)) for problem in _of_value(found, n)]
    if problems:
        raise InvalidParts(problems)
    return tuple(each for _, each in found)


def _listed(raw: Any) -> list[tuple[KeyPath, Any]]:
    """Values, each with its path below the key."""
    return [((str(n),), each) for n, each in enumerate(raw)] if isinstance(raw, list) else [((), raw)]


def _of_value(found: Sequence[tuple[KeyPath, Any]], place: int) -> Iterator[Problem]:
    path, value = found[place]
    if value is None:
        fix = "remove it; the table with `otherwise: true` has records without a value"
        yield Problem(path, "null cannot be named", fix)
    elif type(value) not in KINDS:
        yield Problem(path, "is not a value of a route", "use text, a whole number, true or false")
    elif type(value) is int and value not in LONG:
        yield Problem(path, f"{value} is more than a whole number of a record can be", "remove it")
    elif any(_same(value, earlier) for _, earlier in found[:place]):
        yield Problem(path, f"{_shown(value)} is named twice", "remove one of the two")


def _same(one: Any, other: Any) -> bool:
    """In Python, 1 is True."""
    return type(one) is type(other) and one == other


def _shown(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


class RouteSection(Section):
    """Which records of the topic are the table's, by a value that they hold; see docs/steps.md. Absent: all of them."""

    column: fields.FieldPath
    value: Annotated[tuple[Value, ...] | None, BeforeValidator(_values)] = None
    otherwise: bool = False

    def problems(self) -> Iterator[Problem]:
        if self.value is None and not self.otherwise:
            yield Problem((), "names no records", "add `value:`, or `otherwise: true`")
        if self.value is not None and self.otherwise:
            yield Problem(("otherwise",), "cannot be used together with `value`", "remove one of the two")


@dataclass(frozen=True, slots=True)
class _Written:
    """What can be compared of a route as it is written."""

    table: str
    column: str | None
    values: tuple[tuple[KeyPath, Value], ...]
    otherwise: bool

    @property
    def path(self) -> KeyPath:
        return ("tables", self.table, "route")


def route_problems(tables: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem that lies between routes, of values as written."""
    together: dict[tuple[str, ...], list[_Written]] = {}
    for name, table in tables.items():
        if isinstance(table, dict) and isinstance(table.get("route"), dict):
            together.setdefault(_read_as_written(table), []).append(_written(name, table["route"]))
    for routes in together.values():
        yield from _several_columns(routes)
        yield from _several_kinds(routes)
        yield from _named_again(routes)
        yield from _several_otherwise(routes)


def _read_as_written(table: Mapping[str, Any]) -> tuple[str, ...]:
    value = table.get("value")
    source = value if isinstance(value, dict) else {}
    return tuple(map(repr, (table.get("topic"), source.get("subject"), source.get("message"))))


def _written(table: str, route: Mapping[str, Any]) -> _Written:
    column, raw = route.get("column"), route.get("value")
    values = (
        (("tables", table, "route", "value", *path), each)
        for path, each in _listed(raw)
        if type(each) in KINDS
    )
    return _Written(
        table, column if isinstance(column, str) else None, tuple(values), route.get("otherwise") is True
    )


def _several_columns(routes: Sequence[_Written]) -> Iterator[Problem]:
    having = [each for each in routes if each.column is not None]
    for each in having[1:]:
        if each.column != having[0].column:
            reason = f'"{each.column}" is not "{having[0].column}", by which table {having[0].table} has its records'
            yield Problem((*each.path, "column"), reason, "route a topic by one column")


def _several_kinds(routes: Sequence[_Written]) -> Iterator[Problem]:
    named = [(each.table, path, value) for each in routes for path, value in each.values]
    for _, path, value in named[1:]:
        table, _, first = named[0]
        if type(value) is not type(first):
            reason = f"{_shown(value)} is {KINDS[type(value)]}, and {_shown(first)} of table {table} is {KINDS[type(first)]}"
            yield Problem(path, reason, "write all of them as the column has them, text in quotes")


def _named_again(routes: Sequence[_Written]) -> Iterator[Problem]:
    first: dict[tuple[type, Value], str] = {}
    for each in routes:
        for path, value in each.values:
            other = first.setdefault((type(value), value), each.table)
            if other != each.table:
                reason = f"{_shown(value)} is named by table {other}, too"
                yield Problem(path, reason, "remove one of the two")


def _several_otherwise(routes: Sequence[_Written]) -> Iterator[Problem]:
    having = [each for each in routes if each.otherwise]
    for each in having[1:]:
        reason = f"is already said of table {having[0].table}, which reads the same records"
        yield Problem((*each.path, "otherwise"), reason, "name values instead")
