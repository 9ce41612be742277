"""Where the contract with Snowflake is tried: the stand-in beside moto, or a real account beside a real lake."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from calve.names import TableName
from lambdas.snowflake.objects import Wanted
from lambdas.snowflake.sql import Lake
from lambdas.snowflake.sql_api import KeyPair, Session
from tests.unit.lambdas.snowflake.world import CONFIG, SERVICE, TRADES, world

PREFIX = "CALVE_SNOWFLAKE_"
VARIABLES = {
    "ACCOUNT": "account identifier, such as myorg-myaccount",
    "USER": "a user that may make all objects in ACCOUNTADMIN",
    "PRIVATE_KEY_FILE": "its private key, in PEM",
    "LAKE": "S3 URI above the tables, with its slash",
    "REGION": "of the lake",
    "VOLUME_ROLE": "ARN of a role that reads the lake; its trust is changed",
    "CATALOG_ROLE": "ARN of a role that reads the Glue catalog; its trust is changed",
    "TABLE": "an Iceberg table that exists, DATABASE.TABLE",
}
REAL = PREFIX + "REAL"


@dataclass
class Place:
    """An account, a lake with one table, and what is to be made of them."""

    admin: Session
    wanted: Wanted
    table: TableName
    key: KeyPair
    client: Any

    def service(self, key: KeyPair) -> Session:
        config = self.wanted.config
        user, role = config.service_user, config.publisher
        return replace(self.admin, user=user, key=key, role=role, _token="", _signed_s=0.0)


@contextmanager
def place() -> Iterator[Place]:
    """The real account where `make test-snowflake` asks for it, else the stand-in."""
    if os.environ.get(REAL):
        yield _real()
        return
    with world() as snow:
        snow.commit()
        admin = Session(snow.url, "myorg-myaccount", "DEPLOYER", snow.admin.key, "ACCOUNTADMIN")
        yield Place(admin, snow.wanted, TRADES, SERVICE, snow.client)


def _real() -> Place:
    missing = [
        f"  {PREFIX}{name}: {what}" for name, what in VARIABLES.items() if PREFIX + name not in os.environ
    ]
    if missing:
        pytest.exit("make test-snowflake needs\n" + "\n".join(missing), returncode=2)
    given = {name: os.environ[PREFIX + name] for name in VARIABLES}
    suffix = uuid.uuid4().hex[:6].upper()
    names: dict[str, Any] = {}
    for each in ("database", "schema", "reader", "publisher", "service_user", "volume", "integration"):
        names[each] = f"CALVE_CONTRACT_{each.upper()}_{suffix}"
    config = replace(
        CONFIG,
        account=given["ACCOUNT"],
        url=f"https://{given['ACCOUNT'].lower().replace('_', '-')}.snowflakecomputing.com",
        user=given["USER"].upper(),
        warehouse=None,
        **names,
    )
    table = TableName(*given["TABLE"].split("."))
    region, lake_role = given["REGION"], given["VOLUME_ROLE"]
    lake = Lake(
        location=given["LAKE"],
        region=region,
        account=lake_role.split(":")[4],
        database=table.database,
        volume_role=lake_role,
        catalog_role=given["CATALOG_ROLE"],
        external_id=f"calve-contract-{suffix}",
    )
    key = KeyPair.of_pem(Path(given["PRIVATE_KEY_FILE"]).read_text())
    admin = Session(config.url, config.account, config.user, key, config.admin_role)
    wanted = Wanted(f"contract-{suffix.lower()}", config, lake)
    return Place(admin, wanted, table, KeyPair.generate(), lambda service: boto3.client(service, region))
