"""Queries run by DuckDB over the lake: a query reads the tables that it names, and changes nothing.

DuckDB's extensions come as wheels, so nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from calve.config.job import Lake
from calve.errors import CalveError, ConfigError, Fatal, Retryable
from cli.lake import credentials
from cli.look.query.statement import Opened, Reference, Statement

EXTENSIONS = ("httpfs", "avro", "iceberg")
HISTORY = "as of"
"""The schema of tables that a query reads as of some time, under names that say so."""

BATCH = 1_000
AS_THEY_ARE = {"boolean", "float", "double", "varchar"} | {
    f"{sign}{size}int" for sign in ("", "u") for size in ("tiny", "small", "big", "huge")
}
AS_THEY_ARE |= {"integer", "uinteger"}
Value = Any
"""A text, a number, a boolean, None, a list or a dict of such."""
Place = tuple[str, str]
"""A schema, and a view in it."""


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
        connection.load_extension(str(_extension(extension)))
    secret = ", ".join(f"{key} {literal(value)}" for key, value in _secret(lake).items())
    connection.execute(f"CREATE SECRET (TYPE s3, {secret})")
    return connection


def _secret(lake: Lake) -> dict[str, str]:
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
    return secret


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _extension(name: str) -> Path:
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"duckdb_extension_{name}")
    folder = Path(found.submodule_search_locations[0])
    return folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"


class Answer:
    """The columns of an answer, and its rows as they are read."""

    def __init__(self, connection: DuckDBPyConnection, sql: str) -> None:
        """Bind the query; rows are read later."""
        self._connection = connection
        with _errors():
            query = connection.sql(sql)
            self.columns: Sequence[str] = query.columns
            self.types: Sequence[str] = [str(each) for each in query.types]
            self._relation = query.project(
                ", ".join(
                    f"CAST(#{number} AS {_plain(kind)}) AS {identifier(name)}"
                    for number, (name, kind) in enumerate(
                        zip(query.columns, query.types, strict=True), start=1
                    )
                )
            )

    def rows(self) -> Iterator[tuple[Value, ...]]:
        """Every row, as the query orders them."""
        with _errors():
            while found := self._relation.fetchmany(BATCH):
                yield from found


@contextmanager
def answered(
    statement: Statement, tables: Mapping[Reference, Opened], lake: Lake, database: str
) -> Iterator[Answer]:
    """The answer of a statement over these tables; names without a database are of `database`."""
    with connect(lake) as connection:
        with _errors():
            places = {reference: _view(connection, reference, table) for reference, table in tables.items()}
            for sql in _closing(database, tables.values()):
                connection.execute(sql)
        yield Answer(connection, statement.sql(places))


def _view(connection: DuckDBPyConnection, reference: Reference, table: Opened) -> Place:
    """The place of a view of the table, made here.

    `OFFSET 0` keeps filters out of the scan: DuckDB 1.5's Iceberg extension prunes files wrongly by days before 1970 and by NaN.
    Filters made by joins pass it nevertheless; `_closing` switches them off.
    """
    place = (table.name.database, table.name.table)
    if reference.when is not None:
        place = (HISTORY, f"{table.name} {table.snapshot}")
    source = [literal(table.metadata)]
    if table.snapshot is not None:
        source.append(f"snapshot_from_id = {table.snapshot}")
    schema, view = map(identifier, place)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    scan = f"SELECT * FROM iceberg_scan({', '.join(source)}) OFFSET 0"  # noqa: S608  all of it is quoted
    connection.execute(f"CREATE OR REPLACE VIEW {schema}.{view} AS {scan}")
    return place


def _closing(database: str, tables: Collection[Opened]) -> Iterator[str]:
    """Statements after which a query can read only these tables, and leaves nothing behind."""
    yield f"CREATE SCHEMA IF NOT EXISTS {identifier(database)}"
    yield f"SET schema = {literal(identifier(database))}"
    yield "SET disabled_optimizers = 'join_filter_pushdown'"
    yield "SET temp_directory = ''"  # else rows would spill onto this machine's disk
    folders = ", ".join(literal(f"{each.location.rstrip('/')}/") for each in tables)
    yield f"SET allowed_directories = [{folders}]"
    yield "SET enable_external_access = false"
    yield "SET lock_configuration = true"


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
