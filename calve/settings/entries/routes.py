"""One topic to many tables, by a value that its records hold.

Routes of tables that read the same records belong together: they say of each of these records which table it is for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from calve.config.steps import Value
from calve.settings import fields, notation
from calve.settings.document import at
from calve.settings.fields import Section
from calve.settings.problems import Invalid, InvalidParts, KeyPath, Problem

KINDS = {str: "text", int: "a whole number", bool: "true or false"}
LONG = range(-(2**63), 2**63)


def _values(raw: Any) -> tuple[Value, ...]:
    """One value, or a list of them."""
    listed = _listed(raw)
    if not listed:
        raise Invalid("is empty", "name a value, or remove it and use `otherwise: true`")
    problems = [Problem(path, *problem) for path, each in listed if (problem := _problem(each))]
    if problems:
        raise InvalidParts(problems)
    values = [each for _, each in listed]  # by their types too: in Python, 1 is True
    return tuple(notation.distinct(values, lambda each: (type(each), each), '"{value}" is named twice'))


def _listed(raw: Any) -> list[tuple[KeyPath, Any]]:
    """Values, each with its path below the key."""
    return [((str(n),), each) for n, each in enumerate(raw)] if isinstance(raw, list) else [((), raw)]


def _problem(value: Any) -> tuple[str, str] | None:
    if value is None:
        fix = "remove it; the table with `otherwise: true` has records without a value"
        return "null cannot be named", fix
    if type(value) not in KINDS:
        return "is not a value of a route", "use text, a whole number, true or false"
    if type(value) is int and value not in LONG:
        return f"{value} is too large for a whole number of a record", "remove it"
    return None


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


def route_problems(tables: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem between routes of tables that read the same records, of values as written."""
    together: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for name, table in tables.items():
        if isinstance(at(table, "route"), dict):
            source = (table.get("topic"), at(table, "value", "subject"), at(table, "value", "message"))
            together.setdefault(tuple(map(repr, source)), {})[name] = table["route"]
    for routes in together.values():
        yield from _several_columns(routes)
        yield from _value_problems(routes)


def _several_columns(routes: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    columns = [(name, each["column"]) for name, each in routes.items() if isinstance(each.get("column"), str)]
    for name, column in columns[1:]:
        table, first = columns[0]
        if column != first:
            reason = f'"{column}" is not "{first}", the column of table {table}'
            yield Problem(("tables", name, "route", "column"), reason, "route a topic by one column")
    others = [name for name, each in routes.items() if each.get("otherwise") is True]
    for name in others[1:]:
        reason = f"is already set for table {others[0]}, which reads the same records"
        yield Problem(("tables", name, "route", "otherwise"), reason, "name values instead")


def _value_problems(routes: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    named = [
        (name, ("tables", name, "route", "value", *path), value)
        for name, route in routes.items()
        for path, value in _listed(route.get("value"))
        if type(value) in KINDS
    ]
    tables: dict[tuple[type, Value], str] = {}
    for name, path, value in named:
        table, _, first = named[0]
        if type(value) is not type(first):
            kind, other = KINDS[type(value)], f"{_shown(first)} of table {table} is {KINDS[type(first)]}"
            fix = "write all values in the type of the column, text in quotes"
            yield Problem(path, f"{_shown(value)} is {kind}, and {other}", fix)
        earlier = tables.setdefault((type(value), value), name)
        if earlier != name:
            yield Problem(path, f"{_shown(value)} is named by table {earlier}, too", "remove one of the two")
