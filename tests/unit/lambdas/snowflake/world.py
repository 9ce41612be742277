"""An account of Snowflake beside a lake in moto, and what calve is told of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import boto3
from moto import mock_aws

from calve.config.publishing import Snowflake
from calve.http_client import NoAnswer
from calve.names import TableName
from lambdas.snowflake.objects import Wanted, establish, make
from lambdas.snowflake.sql import Lake
from lambdas.snowflake.sql_api import KeyPair, Session
from tests.standins.snowflake.account import Account
from tests.standins.snowflake.reach import Reach
from tests.standins.snowflake.server import Api, Cut, serving
from tests.synth.deployments import SNOWFLAKE

REGION = "eu-north-1"
ACCOUNT = "123456789012"
BUCKET = "trading-lake"
ADMIN = KeyPair.generate()
SERVICE = KeyPair.generate()
CONFIG = replace(SNOWFLAKE, url="", secret="aws:snowflake/admin")
LAKE = Lake(
    location=f"s3://{BUCKET}/",
    region=REGION,
    account=ACCOUNT,
    database="trading",
    volume_role=f"arn:aws:iam::{ACCOUNT}:role/volume",
    catalog_role=f"arn:aws:iam::{ACCOUNT}:role/catalog",
    external_id="calve-5f6c",
)
GLUE = ["glue:GetCatalog", "glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables"]
READ = ["s3:GetObject", "s3:GetObjectVersion"]
TRADES = TableName("trading", "trades")


class Direct(Session):
    """Asks the API in this process: as strict as by HTTP, and faster."""

    api: Api

    def _send(self, url: str, statement: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        path = url.removeprefix(self.url)
        try:
            return self.api.ask(path, self._current_token(), statement)
        except Cut:
            raise NoAnswer("Snowflake does not answer: the connection was cut") from None


@cache
def client(service: str) -> Any:
    return boto3.client(service, REGION)


@dataclass
class World:
    api: Api
    url: str
    config: Snowflake
    lake: Lake = LAKE
    _commits: int = field(default=0)

    @property
    def account(self) -> Account:
        return self.api.account

    @property
    def wanted(self) -> Wanted:
        return Wanted("trading", self.config, self.lake)

    def having(self, **changes: Any) -> Wanted:
        """Other settings, for this test alone."""
        return Wanted("trading", replace(self.config, **changes), self.lake)

    @cached_property
    def admin(self) -> Session:
        return self._session(self.config.user, ADMIN, "ACCOUNTADMIN")

    @cached_property
    def service(self) -> Session:
        return self._session(self.config.service_user, SERVICE, self.config.publisher)

    def _session(self, user: str, key: KeyPair, role: str) -> Session:
        session = Direct(self.url, self.config.account, user, key, role)
        session.api = self.api
        return session

    def client(self, service: str) -> Any:
        return client(service)

    def deploy(self, old: Wanted | None = None, wanted: Wanted | None = None) -> None:
        """All that the custom resource does, but for its verification."""
        now = wanted or self.wanted
        make(self.admin, now, old, SERVICE, lambda: self.trust(now))

    def trust(self, wanted: Wanted) -> None:
        establish(self.admin, wanted.config, wanted.lake, self.client("iam"))

    def commit(self, name: TableName = TRADES, uuid: str = "u-1") -> str:
        """A commit to a table of the lake; returns its metadata's location."""
        self._commits += 1
        key = f"{name.database}/{name.table}/metadata/{self._commits:05}.metadata.json"
        metadata = {
            "table-uuid": uuid,
            "last-updated-ms": 1_000_000 + self._commits,
            "last-sequence-number": self._commits,
            "current-snapshot-id": self._commits,
            "snapshots": [
                {
                    "snapshot-id": self._commits,
                    "sequence-number": self._commits,
                    "timestamp-ms": 1_000_000 + self._commits,
                }
            ],
        }
        self.client("s3").put_object(Bucket=BUCKET, Key=key, Body=json.dumps(metadata).encode())
        location = f"s3://{BUCKET}/{key}"
        table = {"Name": name.table, "Parameters": {"table_type": "ICEBERG", "metadata_location": location}}
        glue = self.client("glue")
        try:
            glue.update_table(DatabaseName=name.database, TableInput=table)
        except glue.exceptions.EntityNotFoundException:
            glue.create_table(DatabaseName=name.database, TableInput=table)
        return location

    def state(self) -> dict[str, Any]:
        """Everything in the account but what happened on the way, for comparisons."""
        rights = self.account.rights
        return {
            "objects": {
                key: (each.owner, each.options, each.facts.get("metadata"))
                for key, each in rights.objects.items()
            },
            "granted": set(rights.granted),
            "future": set(rights.future),
            "roles": {role: set(held) for role, held in rights.inherits.items()},
            "users": {user: set(held) for user, held in rights.of_user.items()},
        }

    def statements(self) -> list[str]:
        return [sql for _, sql in self.account.done]


@contextmanager
def world() -> Iterator[World]:
    with mock_aws():
        client.cache_clear()  # those of an earlier mock ask a real AWS
        account = Account("MYORG-MYACCOUNT", Reach(client, REGION))
        account.add_administrator("DEPLOYER", ADMIN.public_text)
        _lake()
        api = Api(account)
        with serving(api) as url:
            yield World(api, url, replace(CONFIG, url=url))


def _lake() -> None:
    boto3.client("s3", REGION).create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    boto3.client("glue", REGION).create_database(DatabaseInput={"Name": "trading"})
    bucket, glue = f"arn:aws:s3:::{BUCKET}", f"arn:aws:glue:{REGION}:{ACCOUNT}"
    role(
        "volume",
        (["s3:ListBucket", "s3:GetBucketLocation"], [bucket]),
        (READ, [f"{bucket}/*"]),
    )
    role("catalog", (GLUE, [f"{glue}:catalog", f"{glue}:database/trading", f"{glue}:table/trading/*"]))


def role(name: str, *allowed: tuple[list[str], list[str]]) -> None:
    """A role that trusts nobody."""
    iam = boto3.client("iam", REGION)
    nobody = {"Version": "2012-10-17", "Statement": []}
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(nobody))
    statements = [{"Effect": "Allow", "Action": some, "Resource": what} for some, what in allowed]
    document = {"Version": "2012-10-17", "Statement": statements}
    iam.put_role_policy(RoleName=name, PolicyName="Work", PolicyDocument=json.dumps(document))
