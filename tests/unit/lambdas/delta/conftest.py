"""Iceberg tables in a folder, published from a Glue and an S3 by moto, where their Delta logs are written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto import mock_aws
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from calve.names import TableName
from lambdas.delta import handler
from lambdas.delta.log import DeltaLog
from tests.unit.lambdas.cloudformation import CloudFormation, cloudformation
from tests.unit.lambdas.states_table import NAME, make_states_table

BUCKET = "lake"
TRADES, USERS = TableName("trading", "trades"), TableName("trading", "users")


@dataclass
class World:
    """The lake, and the deployment's side of the functions."""

    catalog: Catalog
    side: CloudFormation

    @property
    def s3(self) -> Any:
        return boto3.client("s3")

    def append(self, name: TableName, rows: int) -> Table:
        """Commit rows, and show the table's new metadata in Glue."""
        values = pa.table({"id": pa.array(range(rows), pa.int64())})
        made = self.catalog.create_table_if_not_exists(f"source.{name.table}", values.schema)
        made.append(values)
        self.show(name, made)
        return made

    def show(self, name: TableName, table: Table) -> None:
        text = json.dumps(json.loads(table.metadata.model_dump_json()) | {"location": location(name)})
        key = f"metadata/{name.table}-{len(table.snapshots())}.metadata.json"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=text)
        glue, parameters = boto3.client("glue"), {"metadata_location": f"s3://{BUCKET}/{key}"}
        entry = {"Name": name.table, "Parameters": parameters}
        there = [each["Name"] for each in glue.get_tables(DatabaseName=name.database)["TableList"]]
        call = glue.update_table if name.table in there else glue.create_table
        call(DatabaseName=name.database, TableInput=entry)

    def rows(self, name: TableName) -> int:
        """The rows that the table's log names."""
        files = DeltaLog(self.s3, location(name)).read().files.values()
        deleted = sum(each.get("deletionVector", {}).get("cardinality", 0) for each in files)
        return int(sum(json.loads(each["stats"])["numRecords"] for each in files) - deleted)

    def properties(self, *tables: TableName) -> dict[str, str]:
        """Of the custom resource, for these tables."""
        said = {
            "deployment": "trading",
            "tables": [str(each) for each in tables],
            "patterns": [],
            "database": "trading",
        }
        key = f"published/{len(tables)}.json"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps(said))
        return {"Deployment": "trading", "PublishedFile": f"s3://{BUCKET}/{key}", "StatesTable": NAME}


def location(name: TableName) -> str:
    return f"s3://{BUCKET}/trading/{name.table}"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two tables are published; neither is there."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    monkeypatch.setenv("POWERTOOLS_TRACE_DISABLED", "true")
    monkeypatch.setenv("STATES_TABLE", NAME)
    with mock_aws(), cloudformation() as side:
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        boto3.client("glue").create_database(DatabaseInput={"Name": "trading"})
        catalog = load_catalog(
            "glue", type="glue", **{"glue.region": "us-east-1", "warehouse": tmp_path.as_uri()}
        )
        catalog.create_namespace("source")
        make_states_table()
        made = World(catalog, side)
        wanted = made.properties(TRADES, USERS)
        monkeypatch.setenv("PUBLISHED_FILE", wanted["PublishedFile"])
        for each in (handler._sync, handler._published, handler._client):
            each.cache_clear()
        yield made
