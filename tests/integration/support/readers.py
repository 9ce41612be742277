"""Readers of a Delta log that are not calve's: deltalake, DuckDB, and Spark with Delta's own library."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from calve.config.job import Lake
from cli.embedded import aws
from cli.embedded.stack import Stack
from cli.look.query.answer import connect

Rows = list[str]
"""Each row as text, sorted."""


def rows_of(table: pa.Table) -> Rows:
    """All rows, in a form that is the same for each reader."""
    names = sorted(table.column_names)
    return sorted(repr([(name, _plain(row[name])) for name in names]) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return sorted((name, _plain(one)) for name, one in value.items())
        case list() if value and all(isinstance(each, tuple) for each in value):
            return sorted((_plain(key), _plain(one)) for key, one in value)
        case list():
            return [_plain(each) for each in value]
    return value


def by_deltalake(lake: Lake, location: str) -> Rows:
    said = (
        QueryBuilder()
        .register("found", delta_table(lake, location))
        .execute("SELECT * FROM found")
        .read_all()
    )
    return rows_of(pa.table(said))


def delta_table(lake: Lake, location: str) -> DeltaTable:
    return DeltaTable(location, storage_options=dict(_options(lake)))


def by_duckdb(lake: Lake, location: str) -> Rows:
    with opened(lake) as connection:
        return rows_of(connection.execute("SELECT * FROM delta_scan(?)", [location]).to_arrow_table())


OF_DELTA: Mapping[str, Callable[[Lake, str], Rows]] = {"deltalake": by_deltalake, "DuckDB": by_duckdb}


def by_spark(stack: Stack, location: str, folder: Path) -> list[Rows]:
    """The rows of each version, as Spark reads them by Delta's library from a copy of the table in `folder`."""
    place, s3 = urlsplit(location), aws.client("s3", stack.aws_endpoint)
    prefix = place.path.lstrip("/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=place.netloc, Prefix=f"{prefix}/")
    for key in (each["Key"] for page in pages for each in page.get("Contents", ())):
        target = folder / "table" / key.removeprefix(f"{prefix}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(s3.get_object(Bucket=place.netloc, Key=key)["Body"].read())
    answer = folder / "answer.json"
    command = [
        sys.executable,
        "-m",
        "tests.standins.delta",
        str(stack.root),
        str(folder / "table"),
        str(answer),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[Rows] = json.loads(answer.read_text())
    return found


def opened(lake: Lake) -> duckdb.DuckDBPyConnection:
    """DuckDB with its extension for Delta."""
    connection = connect(lake)
    folder = files("duckdb_extension_delta") / "extensions" / f"v{duckdb.__version__}"
    connection.load_extension(str(folder / "delta.duckdb_extension"))
    return connection


def _options(lake: Lake) -> Mapping[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": aws.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": aws.SECRET_KEY,
        "AWS_REGION": lake.region or "us-east-1",
        "AWS_ENDPOINT_URL": lake.endpoint or "",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
