"""What a query says before it is run: that it is one, which tables it names, and as of when.

DuckDB's own parser reads it, so that nothing here has to know SQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb

from calve.errors import ConfigError

Node = dict[str, Any]
When = int | datetime
"""As of a snapshot, by its id, or as of a moment."""

READS_ONLY = "write a query: select, with, from, values, describe or summarize"
ONE_SELECT = "SELECT 1"


@dataclass(frozen=True, slots=True)
class Reference:
    """A table as a query names it, in lower case, as Glue keeps names; `when`: None where it is to be the newest."""

    database: str | None
    table: str
    when: When | None = None

    def __str__(self) -> str:
        return f"{self.database}.{self.table}" if self.database else self.table


class Statement:
    """A text that is one query."""

    def __init__(self, text: str) -> None:
        """Parse it.

        Raises:
            ConfigError: it is no query, or more than one, or names a table or a moment in a way that cannot be used.
        """
        self.text = text.strip().rstrip(";")
        with duckdb.connect() as parser:
            self._tree = _parsed(parser, self.text)
            self._named = [(each, _reference(parser, each)) for each in _tables(self._tree)]
        self.tables = frozenset(reference for _, reference in self._named)
        self.defined = frozenset(str(name).lower() for name in _defined(self._tree))

    def sql(self, places: Mapping[Reference, tuple[str, str]]) -> str:
        """The text as DuckDB can run it: each table that is read as of some time stands for the view (schema, name) of it.

        DuckDB knows `AT` for tables of attached catalogs alone.
        """
        if not any(reference.when is not None for reference in self.tables):
            return self.text
        tree = deepcopy(self._tree)
        for node, (_, reference) in zip(_tables(tree), self._named, strict=True):
            if reference.when is not None:
                node["alias"] = node["alias"] or node["table_name"]
                node["schema_name"], node["table_name"] = places[reference]
                node["at_clause"] = None
        with duckdb.connect() as parser:
            return _text(parser, tree)


def _parsed(parser: duckdb.DuckDBPyConnection, text: str) -> Node:
    found = _json(parser, "SELECT json_serialize_sql(?)", text)
    if found["error"]:
        if found["error_type"] == "parser":
            raise ConfigError(f"the query cannot be read: {found['error_message']}")
        raise ConfigError("only queries are run; tables are written by the job alone", fix=READS_ONLY)
    if len(found["statements"]) != 1:
        raise ConfigError("there is more than one query", fix="run them one by one")
    if any(node.get("show_type") == "SHOW_UNQUALIFIED" for node in _nodes(found, "SHOW_REF")):
        raise ConfigError("a query reads tables; it does not list them", fix="calve tables")
    return dict(found)


def _reference(parser: duckdb.DuckDBPyConnection, node: Node) -> Reference:
    if node["catalog_name"]:
        name = f"{node['catalog_name']}.{node['schema_name']}.{node['table_name']}"
        raise ConfigError(f'"{name}" has three parts', fix="write the table's name, or DATABASE.TABLE")
    when = _when(parser, node["at_clause"]) if node["at_clause"] else None
    return Reference(node["schema_name"].lower() or None, node["table_name"].lower(), when)


def _when(parser: duckdb.DuckDBPyConnection, clause: Node) -> When:
    kind = "BIGINT" if clause["unit"].upper() == "VERSION" else "TIMESTAMPTZ"
    tree = _json(parser, "SELECT json_serialize_sql(?)", ONE_SELECT)
    tree["statements"][0]["node"]["select_list"] = [clause["expr"]]
    try:
        parser.execute("SET TimeZone = 'UTC'")
        # As a text: DuckDB's TIMESTAMPTZ is a Python value only where pytz is installed.
        row = parser.execute(f"SELECT CAST(({_text(parser, tree)}) AS {kind})::VARCHAR").fetchone()
        text = str(row and row[0])
        return int(text) if kind == "BIGINT" else datetime.fromisoformat(text).astimezone(UTC)
    except (duckdb.Error, ValueError):
        fix = "write `at (version => ID)`, or `at (timestamp => '2026-11-20 10:00:00+00')`, with constants"
        raise ConfigError(f"`at ({clause['unit'].lower()} => ...)` cannot be used", fix=fix) from None


def _tables(tree: Node) -> Iterator[Node]:
    return _nodes(tree, "BASE_TABLE")


def _defined(tree: Any) -> Iterator[str]:
    """The names that the query's own `with` clauses define."""
    if isinstance(tree, dict) and "cte_map" in tree:
        yield from (entry["key"] for entry in tree["cte_map"]["map"])
    for each in _children(tree):
        yield from _defined(each)


def _nodes(tree: Any, kind: str) -> Iterator[Node]:
    if isinstance(tree, dict) and tree.get("type") == kind:
        yield tree
    for each in _children(tree):
        yield from _nodes(each, kind)


def _children(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return list(tree.values())
    return tree if isinstance(tree, list) else []


def _text(parser: duckdb.DuckDBPyConnection, tree: Node) -> str:
    row = parser.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchone()
    return str(row[0]) if row else ""


def _json(parser: duckdb.DuckDBPyConnection, query: str, text: str) -> Any:
    row = parser.execute(query, [text]).fetchone()
    return json.loads(row[0]) if row else {}
