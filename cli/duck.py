"""DuckDB over the lake: its extensions come as wheels, so that nothing is downloaded."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb

from calve.config.job import Lake
from cli.lake import credentials

EXTENSIONS = ("httpfs", "avro", "iceberg")


def connect(lake: Lake) -> duckdb.DuckDBPyConnection:
    """A database in memory that reads the lake's files, with the credentials of the other commands.

    Raises:
        ConfigError: there are no credentials.
    """
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
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name as DuckDB's SQL writes it, whatever it consists of."""
    return '"' + name.replace('"', '""') + '"'


def _extension(name: str) -> Path:
    """The extension's file: its wheel brings nothing else."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"duckdb_extension_{name}")
    folder = Path(found.submodule_search_locations[0])
    return folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
