"""Queries run by DuckDB over the lake: a query reads the tables that it names, and changes nothing.

Before it runs, DuckDB's own parser says that it is one query, which tables it names, and each as of which snapshot. The catalog
finds the tables. DuckDB's extensions come as wheels, so nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchIcebergTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from calve.config.job import Lake
from calve.errors import CalveError, ConfigError, Fatal, Retryable
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.settings.problems import near_miss
from cli.lake import Tables, credentials, load

Node = dict[str, Any]
When = int | datetime
"""As of a snapshot, by its id, or as of a moment."""

READS_ONLY = "write a query: select, with, from, values, describe or summarize"


@dataclass(frozen=True, slots=True)
class Reference:
    """A table as a query names it, in lower case as in Glue; `when`: None for the newest snapshot."""

    database: str | None
    table: str
    when: When | None = None

    def __str__(self) -> str:
        return f"{self.database}.{self.table}" if self.database else self.table


class Statement:
    """A text that is one query."""

    def __init__(self, text: str) -> None:
        self.text = text.strip().rstrip(";")
        with duckdb.connect() as parser:
            self._tree = _parsed(parser, self.text)
            self._named = [_reference(parser, each) for each in _nodes(self._tree, "BASE_TABLE")]
        self.tables = frozenset(self._named)
        # The names of the query's own `with` clauses.
        maps = [each["cte_map"]["map"] for each in _all_nodes(self._tree) if "cte_map" in each]
        self.defined = frozenset(str(entry["key"]).lower() for found in maps for entry in found)

    def sql(self, places: Mapping[Reference, tuple[str, str]]) -> str:
        """The text for DuckDB: a view (schema, name) replaces each table that is read as of some time.

        DuckDB knows `AT` only for tables of attached catalogs.
        """
        if not any(reference.when is not None for reference in self.tables):
            return self.text
        tree = deepcopy(self._tree)
        for node, reference in zip(_nodes(tree, "BASE_TABLE"), self._named, strict=True):
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
            fix = "write SQL as DuckDB reads it: calve query --help has examples"
            raise ConfigError(f"the query cannot be read: {found['error_message']}", fix=fix)
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
    tree = _json(parser, "SELECT json_serialize_sql(?)", "SELECT 1")
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


def _nodes(tree: Any, kind: str) -> Iterator[Node]:
    return (each for each in _all_nodes(tree) if each.get("type") == kind)


def _all_nodes(tree: Any) -> Iterator[Node]:
    if isinstance(tree, dict):
        yield tree
    for each in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _all_nodes(each)


def _text(parser: duckdb.DuckDBPyConnection, tree: Node) -> str:
    row = parser.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchone()
    return str(row[0]) if row else ""


def _json(parser: duckdb.DuckDBPyConnection, query: str, text: str) -> Any:
    row = parser.execute(query, [text]).fetchone()
    return json.loads(row[0]) if row else {}


@dataclass(frozen=True, slots=True)
class Opened:
    """A table as of one snapshot; `snapshot` is None if nothing was written to it yet."""

    name: TableName
    location: str
    metadata: str
    snapshot: int | None
    committed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Lookup:
    """Finds tables: names without a database are of `database`; `configured`: those of calve.yaml."""

    catalog: Catalog
    database: str
    configured: Collection[str]

    def opened(self, statement: Statement, otherwise: When | None) -> dict[Reference, Opened]:
        """The statement's tables at the snapshots that it names, else at `otherwise`, else at the newest.

        A name that the statement defines itself may or may not be a table.
        """
        found = {}
        for reference in sorted(statement.tables, key=str):
            name = TableName(reference.database or self.database, reference.table)
            try:
                table = load(self.catalog, name)
            except NoSuchIcebergTableError:
                raise ConfigError(f"{name} is no Iceberg table") from None
            if table is None:
                if reference.database is None and reference.table in statement.defined:
                    continue
                raise self._missing(name)
            snapshot = _snapshot(table, name, otherwise if reference.when is None else reference.when)
            found[reference] = Opened(
                name,
                table.location(),
                table.metadata_location,
                snapshot.snapshot_id if snapshot else None,
                datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC) if snapshot else None,
            )
        return found

    def _missing(self, name: TableName) -> CalveError:
        of = name.table.removesuffix(DEAD_LETTERS_SUFFIX)
        if name.database == self.database and of in self.configured:
            if of != name.table:
                return CalveError(f"the table {name} does not exist: no record of {of} was ever rejected")
            return CalveError(f"the table {name} does not exist yet", fix="the job makes it: calve ingest")
        known = Tables(self.catalog).names(name.database)
        if not known:
            return ConfigError(f'there is no database "{name.database}" with tables', fix="calve tables")
        fix = near_miss(name.table, known) or "calve tables"
        return ConfigError(f'the database {name.database} has no table "{name.table}"', fix=fix)


def _snapshot(table: Table, name: TableName, when: When | None) -> Snapshot | None:
    if when is None:
        return table.current_snapshot()
    if isinstance(when, int):
        found, problem = table.snapshot_by_id(when), f"{when}; it may have expired"
    else:
        found = table.snapshot_as_of_timestamp(int(when.timestamp() * 1000))
        moment = when.isoformat(sep=" ", timespec="seconds")
        problem = f"as of {moment}; the history that it keeps begins later"
    if found is None:
        raise CalveError(f"{name} has no snapshot {problem}", fix=f"calve tables {name.table}")
    return found


EXTENSIONS = ("httpfs", "avro", "iceberg")
HISTORY = "as of"
"""The schema of tables that a query reads as of some time, under names that say so."""

BATCH = 1_000
AS_THEY_ARE = {"boolean", "float", "double", "varchar"} | {
    f"{sign}{size}int" for sign in ("", "u") for size in ("tiny", "small", "big", "huge")
}
AS_THEY_ARE |= {"integer", "uinteger"}


def connect(lake: Lake) -> duckdb.DuckDBPyConnection:
    """An in-memory database that reads the lake's files, with the credentials of the other commands."""
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,  # else a name in a query could be a variable of this program
        }
    )
    connection.execute("SET TimeZone = 'UTC'")
    for extension in EXTENSIONS:
        folder = files(f"duckdb_extension_{extension}") / "extensions" / f"v{duckdb.__version__}"
        connection.load_extension(str(folder / f"{extension}.duckdb_extension"))
    found = credentials(lake)
    secret = {
        "KEY_ID": found["client.access-key-id"],
        "SECRET": found["client.secret-access-key"],
        "REGION": lake.region,
    }
    if token := found.get("client.session-token"):
        secret["SESSION_TOKEN"] = token
    if lake.endpoint:
        secret |= {"ENDPOINT": lake.endpoint.removeprefix("http://"), "URL_STYLE": "path", "USE_SSL": "false"}
    settings = ", ".join(f"{key} {literal(value)}" for key, value in secret.items())
    connection.execute(f"CREATE SECRET (TYPE s3, {settings})")
    return connection


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Answer:
    """The columns of an answer, and its rows as they are read."""

    def __init__(self, connection: DuckDBPyConnection, sql: str) -> None:
        """Bind the query; rows are read later."""
        self._connection = connection
        with _errors():
            query = connection.sql(sql)
            self.columns: Sequence[str] = query.columns
            self.types: Sequence[str] = [str(each) for each in query.types]
            plain = [
                f"CAST(#{number} AS {_plain(kind)}) AS {identifier(name)}"
                for number, (name, kind) in enumerate(zip(query.columns, query.types, strict=True), start=1)
            ]
            self._relation = query.project(", ".join(plain))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        with _errors():
            while found := self._relation.fetchmany(BATCH):
                yield from found


@contextmanager
def answered(
    statement: Statement, tables: Mapping[Reference, Opened], lake: Lake, database: str
) -> Iterator[Answer]:
    """The answer of a statement over these tables; names without a database are of `database`."""
    folders = ", ".join(literal(f"{each.location.rstrip('/')}/") for each in tables.values())
    with connect(lake) as connection:
        with _errors():
            places = {reference: _view(connection, reference, table) for reference, table in tables.items()}
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(database)}")
            connection.execute(f"SET schema = {literal(identifier(database))}")
            # From here on, a query can read only these tables, and leaves nothing behind.
            connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")
            connection.execute("SET temp_directory = ''")  # else rows would spill onto this machine's disk
            connection.execute(f"SET allowed_directories = [{folders}]")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
        yield Answer(connection, statement.sql(places))


def _view(connection: DuckDBPyConnection, reference: Reference, table: Opened) -> tuple[str, str]:
    """The schema and name of a view of the table, made here.

    `OFFSET 0` keeps filters out of the scan: DuckDB 1.5's Iceberg extension prunes files wrongly by days before 1970 and by NaN.
    Filters made by joins pass it nevertheless; `answered` switches them off.
    """
    place = (table.name.database, table.name.table)
    if reference.when is not None:
        place = (HISTORY, f"{table.name} {table.snapshot}")
    at = "" if table.snapshot is None else f", snapshot_from_id = {table.snapshot}"
    schema, view = map(identifier, place)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    scan = f"SELECT * FROM iceberg_scan({literal(table.metadata)}{at}) OFFSET 0"  # noqa: S608  all of it is quoted
    connection.execute(f"CREATE OR REPLACE VIEW {schema}.{view} AS {scan}")
    return place


def _plain(kind: Any) -> str:
    """The type in which a DuckDBPyType is shown: itself if JSON has it, else a text without loss."""
    match kind.id:
        case "struct":
            fields = (f"{identifier(name)} {_plain(each)}" for name, each in kind.children)
            return f"STRUCT({', '.join(fields)})"
        case "list" | "array":
            return f"{_plain(kind.children[0][1])}[]"
        case "map":
            return f"MAP(VARCHAR, {_plain(kind.children[1][1])})"
        case known if known in AS_THEY_ARE:
            return str(kind)
        case _:
            return "VARCHAR"


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
        raise ConfigError(_message(error)) from None
    except duckdb.PermissionException:
        raise ConfigError(
            "a query reads the tables of the lake and nothing else: no files, no addresses"
        ) from None
    except duckdb.OutOfMemoryException:
        fix = "name fewer columns, or ask Athena: docs/query.md"
        raise CalveError("the memory of this machine does not suffice for the query", fix=fix) from None
    except duckdb.IOException as error:
        raise Retryable(f"the lake cannot be read: {_message(error)}") from None
    except (duckdb.InternalException, duckdb.FatalException) as error:
        fix = "this is a fault of DuckDB's; ask Athena or Spark: docs/query.md"
        raise Fatal(f"DuckDB fails on this query: {_message(error).splitlines()[0]}", fix=fix) from None
    except duckdb.Error as error:
        raise CalveError(_message(error)) from None


def _message(error: duckdb.Error) -> str:
    """DuckDB's message without the name of its kind: `Referenced column "pric" not found ...` with its place."""
    return str(error).partition(": ")[2].strip()
