"""A deployment in moto, beside a stand-in for Polaris."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto import mock_aws

from calve.config.publishing import CatalogBootstrap, IcebergRest
from calve.names import TableName
from tests.polaris import ADMIN, CATALOG, MANAGEMENT, Polaris, Serving
from tests.unit.lambdas.cloudformation import CloudFormation, cloudformation
from tests.unit.lambdas.states_table import NAME, make_states_table

TRADES, USERS = TableName("trading", "trades"), TableName("trading", "users")


@dataclass
class Deployment:
    """What the functions of a deployment work with."""

    polaris: Polaris
    url: str
    cloudformation: CloudFormation
    secret: str

    @property
    def settings(self) -> IcebergRest:
        return IcebergRest(
            f"{self.url}{CATALOG}",
            warehouse="lakehouse",
            secret=f"aws:{self.secret}",
            scope="PRINCIPAL_ROLE:ALL",
            update="notifications",
            bootstrap=CatalogBootstrap("aws:admin", f"{self.url}{MANAGEMENT}"),
        )

    def bootstrap(self, **names: str) -> dict[str, str]:
        """Properties of the custom resource that makes the catalog."""
        wanted = {"deployment": "trading", "catalog": "lakehouse", "location": "s3://lake"} | names
        return {"Catalog": self.settings.to_json(), "Names": json.dumps(wanted), "Secret": self.secret}

    def published(self, *tables: TableName, **changes: Any) -> dict[str, str]:
        """Properties of the custom resource that says what is published."""
        wanted = {
            "deployment": "trading",
            "tables": [str(each) for each in tables],
            "patterns": [],
            "database": "trading",
        }
        text = json.dumps(wanted | changes)
        key = f"published/{hashlib.sha256(text.encode()).hexdigest()}.json"
        boto3.client("s3").put_object(Bucket="lake", Key=key, Body=text)
        return {
            "Catalog": self.settings.to_json(),
            "Published": json.dumps(wanted | {"tables": []}),
            "PublishedFile": f"s3://lake/{key}",
            "StatesTable": NAME,
        }

    def commit(self, name: TableName, number: int) -> str:
        """Metadata of this number; returns where it is."""
        location = f"s3://lake/trading/{name.table}/metadata/{number:05}.gz.metadata.json"
        metadata = {
            "table-uuid": name.table,
            "last-sequence-number": number,
            "last-updated-ms": 1000 * number,
            "current-snapshot-id": number,
            "snapshots": [{"snapshot-id": number, "sequence-number": number, "timestamp-ms": 1000 * number}],
        }
        boto3.client("s3").put_object(
            Bucket="lake",
            Key=location.removeprefix("s3://lake/"),
            Body=gzip.compress(json.dumps(metadata).encode()),
        )
        table = {"Name": name.table, "Parameters": {"metadata_location": location}}
        glue = boto3.client("glue")
        if number == 1:
            glue.create_table(DatabaseName=name.database, TableInput=table)
        else:
            glue.update_table(DatabaseName=name.database, TableInput=table)
        return location

    def shown(self) -> dict[str, str]:
        """The tables in the catalog, with their metadata."""
        found = self.polaris.namespaces.get(("lakehouse", "trading"))
        return {name: location for name, (location, _) in found.tables.items()} if found else {}


def metadata_at(location: str) -> dict[str, Any]:
    bucket, _, key = location.removeprefix("s3://").partition("/")
    body = boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    found: dict[str, Any] = json.loads(gzip.decompress(body))
    return found


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "POWERTOOLS_TRACE_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    polaris = Polaris(read=metadata_at)
    with mock_aws(), Serving(polaris) as serving, cloudformation() as side:
        boto3.client("s3").create_bucket(Bucket="lake")
        boto3.client("glue").create_database(DatabaseInput={"Name": "trading"})
        secrets = boto3.client("secretsmanager")
        secrets.create_secret(Name="admin", SecretString=json.dumps(ADMIN))
        made = secrets.create_secret(Name="made", SecretString="nothing of use")["ARN"]
        make_states_table()
        yield Deployment(polaris, serving.url, side, made)
