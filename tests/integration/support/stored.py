"""What tables of an engine leave in the emulator: objects of the bucket, words of the catalog, exports."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from calve.config.job import Lake
from calve.config.publishing import Export
from cli.embedded import aws
from cli.lake import open_catalog
from lambdas.aws import databases_of
from lambdas.csv_export.delivery import Lake as ExportLake
from lambdas.csv_export.delivery import Outcome
from lambdas.csv_export.export import Order, run
from tests.integration.support.engine import DATABASE, Engine


def objects(engine: Engine, wanted: Callable[[Any], bool]) -> Iterator[tuple[str, bytes]]:
    """All versions of all objects that are wanted, as S3 lists them."""
    s3, bucket = _client(engine, "s3"), engine.stack.bucket
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for each in filter(wanted, page.get("Versions", ())):
            yield each["Key"], s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()


def catalogued(engine: Engine, part: str = "") -> Iterator[tuple[str, bytes]]:
    """What the catalog says of each table that has this in its name."""
    for page in _client(engine, "glue").get_paginator("get_tables").paginate(DatabaseName=DATABASE):
        for table in page["TableList"]:
            if part in table["Name"]:
                yield f"catalog/{table['Name']}/", json.dumps(table, default=str).encode()


def export(
    engine: Engine, name: str, table: str, start: datetime, end: datetime, *, database: str = DATABASE
) -> Outcome:
    """The rows whose records are of this time, as a CSV file."""
    stack = engine.stack
    order = Export(name, database, table, "_kafka.timestamp", "rate(1 day)", ("a@b.c",), wait_s=0.0)
    lake = ExportLake(
        catalog=open_catalog(Lake(DATABASE, f"s3://{stack.bucket}/tests", endpoint=stack.aws_endpoint)),
        databases=lambda: databases_of(_client(engine, "glue"), engine.lake.owner),
        s3=_client(engine, "s3"),
        bucket=stack.bucket,
        prefix="tests/exports/",
        run=uuid.uuid4().hex,
        now=lambda: datetime.now(UTC),
        remaining_s=lambda: 60.0,
    )
    window = {"from": start.isoformat(), "to": end.isoformat()}
    [outcome] = run(Order.of(order, datetime.now(UTC), window), lake, lambda _: None)
    return outcome


def _client(engine: Engine, service: str) -> Any:
    return aws.client(service, engine.stack.aws_endpoint)
