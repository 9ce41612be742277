"""Queries run by DuckDB over the lake: a query reads the tables that it names, and changes nothing.

DuckDB's extensions come as wheels, so nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
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
