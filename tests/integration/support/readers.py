"""Readers of tables that are not calve's: of Iceberg, and of the Delta log beside it.

Spark with Iceberg's own library is the measure. Spark with Delta's library is a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import polars as pl
import pyarrow as pa
from datafusion import SessionContext
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import Table as IcebergTable

from calve.config.job import Lake
from calve.names import TableName
from cli.embedded import aws
from cli.embedded.stack import Stack
from cli.lake import load, open_catalog
from cli.look.query.answer import connect
from lambdas.delta.log import DeltaLog
from lambdas.delta.snapshots import Lake as LakeFiles
from lambdas.delta.sync import Mirror
from tests.combinations import table_of
from tests.query_page import snippets
from tests.standins.spark_connect.server import spark_connect
from tests.standins.trino.server import trino

Row = dict[str, Any]
Rows = list[str]
"""Each row as text, sorted."""


def rows_of(table: pa.Table, as_read: Callable[[Row], Row] = lambda row: row) -> Rows:
    """All rows, in a form that is the same for each reader."""
    return plain_rows([as_read(row) for row in table.to_pylist()])


def plain_rows(rows: list[Row]) -> Rows:
    return sorted(repr(_plain(row)) for row in rows)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return sorted((name, _plain(one)) for name, one in value.items())
        case list() if value and all(isinstance(each, tuple) for each in value):
            return sorted((_plain(key), _plain(one)) for key, one in value)
        case list():
            return [_plain(each) for each in value]
        case datetime() if value.tzinfo:
            return value.astimezone(UTC).isoformat()
    return value


@dataclass(frozen=True)
class Fault:
    """What a reader does otherwise than Spark.

    words: for the page. as_read: a row of Spark's with this fault. fails: whether it cannot read the table, and says `error`.
    met: whether the tables of a mode and format show it. verdict: what the page's cells say of it.
    """

    words: str = ""
    as_read: Callable[[Row], Row] = lambda row: row
    fails: Callable[[IcebergTable], bool] = lambda table: False
    error: str = ""
    met: Callable[[str, int], bool] = lambda mode, version: True
    verdict: str = "same"


def loaded(lake: Lake, name: TableName) -> IcebergTable:
    found = load(open_catalog(lake), name)
    assert found is not None
    return found


def _columns_at_head(table: IcebergTable) -> int | None:
    head = table.current_snapshot()
    return head.schema_id if head else table.schema().schema_id


def _has_deletion_vectors(table: IcebergTable) -> bool:
    head = table.current_snapshot()
    summary = head.summary if head else None
    return table.format_version == 3 and summary is not None and summary["total-delete-files"] != "0"


def _by_pyiceberg(lake: Lake, name: TableName) -> Rows:
    return rows_of(loaded(lake, name).scan().to_arrow())


def _by_duckdb(lake: Lake, name: TableName) -> Rows:
    with connect(lake) as connection:
        place = loaded(lake, name).metadata_location
        return rows_of(connection.execute("SELECT * FROM iceberg_scan(?)", [place]).to_arrow_table())


def _by_polars(lake: Lake, name: TableName) -> Rows:
    with warnings.catch_warnings(category=pl.exceptions.PerformanceWarning, action="ignore"):
        return rows_of(pl.scan_iceberg(loaded(lake, name), reader_override="native").collect().to_arrow())


def _by_datafusion(lake: Lake, name: TableName) -> Rows:
    table, context = loaded(lake, name), SessionContext()
    table.io.properties |= {
        "s3.access-key-id": aws.ACCESS_KEY,
        "s3.secret-access-key": aws.SECRET_KEY,
        "s3.region": lake.region or aws.REGION,
        "s3.path-style-access": "true",
    }
    context.register_table("found", table)
    return rows_of(context.sql("SELECT * FROM found").to_arrow_table())


@contextmanager
def _by_trino(stack: Stack, folder: Path) -> Iterator[Callable[[TableName], Rows]]:
    [catalog] = [each.text for each in snippets() if each.kind == "properties"]
    with trino(stack, folder, catalog.replace("eu-west-1", stack.region)) as server:
        yield lambda name: plain_rows(server.rows(f"SELECT * FROM glue.{name.database}.{name.table}"))


TRINO = "Trino 476"
OF_ICEBERG: Mapping[str, Callable[[Lake, TableName], Rows]] = {
    "PyIceberg 0.12": _by_pyiceberg,
    "DuckDB 1.5": _by_duckdb,
    "Polars 2.1": _by_polars,
    "DataFusion 54 with pyiceberg-core 0.11": _by_datafusion,
}
SERVERS: Mapping[str, Callable[[Stack, Path], AbstractContextManager[Callable[[TableName], Rows]]]] = {
    "Spark Connect 4.1": spark_connect,
    TRINO: _by_trino,
}
"""Servers that read, each started by one of these with a folder for its logs."""

FAULTS: Mapping[str, Fault] = {
    "PyIceberg 0.12": Fault(
        "A list of structs that is null is read as an empty one: for example `_kafka.headers` of a record without headers",
        as_read=lambda row: row | {"_kafka": row["_kafka"] | {"headers": row["_kafka"]["headers"] or []}},
    ),
    "DataFusion 54 with pyiceberg-core 0.11": Fault(
        "It fails while the newest snapshot lacks columns of the table, for example after a rollback",
        fails=lambda table: _columns_at_head(table) != table.schema().schema_id,
        error="not found",
    ),
    TRINO: Fault(
        "It fails while a table of format 3 has deletion vectors: from a round that deletes rows until maintenance",
        fails=_has_deletion_vectors,
        error="Unexpected PUFFIN file format",
        met=lambda mode, version: version == 3 and not table_of(mode).mode.only_adds,
        verdict="fails",
    ),
}


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


def catch_up(stack: Stack, lake: Lake, name: TableName, s3: Any = None) -> int:
    """Write the missing versions of a table's Delta log; their number. s3: another client for the log."""
    table = loaded(lake, name)
    files = LakeFiles(table.io, table.metadata)
    log = DeltaLog(s3 or aws.client("s3", stack.aws_endpoint), table.location())
    return Mirror(name.table, files, log).catch_up()


OF_DELTA: Mapping[str, Callable[[Lake, str], Rows]] = {
    "deltalake 1.6": by_deltalake,
    "DuckDB 1.5": by_duckdb,
}


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
