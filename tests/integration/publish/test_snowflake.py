"""publish.snowflake, deployed by the CDK CLI beside a stand-in for Snowflake: made, made again, followed, removed."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from calve.config.job import Lake
from calve.errors import Fatal
from calve.outputs.announcement import COMMITTED, SOURCE
from cli.embedded import aws
from cli.embedded.cdk import App
from cli.embedded.stack import Stack
from cli.lake import open_catalog
from cli.progress import LineProgress
from lambdas.publish_states import PublishStates, State, Target
from lambdas.snowflake.sql_api import KeyPair
from tests.integration.support.deployed import destroy
from tests.integration.support.engine import until
from tests.standins.snowflake.account import Account
from tests.standins.snowflake.reach import Reach
from tests.standins.snowflake.server import Api, serving

NAME = "snowy"
CONFIG = """\
name: {name}
tables:
  trades: {{topic: trades, freshness: 1s}}
publish:
  snowflake:
    account: myorg-myaccount
    url: {url}
    user: deployer
    secret: aws:calve/snowflake
    warehouse: {{}}
"""
TRADES = ("ICEBERG TABLE", ("SNOWY", "SNOWY", "TRADES"))
ROWS = pa.table({"price": [1, 2, 3]})


@dataclass
class Snowflake:
    """The account and the deployment beside it."""

    stack: Stack
    api: Api
    url: str
    folder: Path

    def app(self, name: str = NAME) -> Any:
        config = self.folder / f"{name}.yaml"
        config.write_text(CONFIG.format(name=name, url=self.url))
        return App(self.stack, config)

    def client(self, service: str) -> Any:
        return aws.client(service, self.stack.aws_endpoint)

    def announce(self, times: int = 1) -> None:
        detail = {"version": 1, "deployment": NAME, "database": NAME, "table": "trades"}
        entry = {"Source": SOURCE, "DetailType": COMMITTED, "Detail": json.dumps(detail)}
        self.client("events").put_events(Entries=[entry] * times)

    def objects(self) -> set[tuple[str, tuple[str, ...]]]:
        return set(self.api.account.rights.objects)

    def metadata(self) -> str | None:
        found = self.api.account.rights.objects.get(TRADES)
        return found.facts["metadata"] if found else None


PROGRESS = LineProgress(lambda line: print(line, file=sys.__stderr__, flush=True))


@pytest.fixture
def snowflake(stack: Stack, tmp_path: Path) -> Iterator[Snowflake]:
    reach = Reach(lambda service: aws.client(service, stack.aws_endpoint), stack.region)
    account = Account("MYORG-MYACCOUNT", reach)
    key = KeyPair.generate()
    account.add_administrator("DEPLOYER", key.public_text)
    secrets = aws.client("secretsmanager", stack.aws_endpoint)
    secrets.create_secret(Name="calve/snowflake", SecretString=json.dumps({"private_key": key.to_pem()}))
    api = Api(account)
    try:
        with serving(api) as url:
            yield Snowflake(stack, api, url, tmp_path)
    finally:
        secrets.delete_secret(SecretId="calve/snowflake", ForceDeleteWithoutRecovery=True)


@pytest.mark.long
def test_snowflake_follows_a_deployment_from_its_first_deploy_to_its_end(snowflake: Snowflake) -> None:
    before = snowflake.objects()
    outputs = snowflake.app().deploy(PROGRESS)[f"{NAME}-publish"]
    made = snowflake.objects() - before
    assert {kind for kind, _ in made} == {
        *("WAREHOUSE", "ROLE", "USER", "EXTERNAL VOLUME", "CATALOG INTEGRATION", "DATABASE", "SCHEMA")
    }
    state = copy.deepcopy(snowflake.api.account.rights)
    snowflake.app().deploy(PROGRESS)
    assert snowflake.api.account.rights == state

    bucket = f"s3://{NAME}-lake-{aws.ACCOUNT}-{aws.REGION}"
    lake = open_catalog(Lake(NAME, bucket, endpoint=snowflake.stack.aws_endpoint, region=aws.REGION))
    newest = _follow(snowflake, lake)
    states = PublishStates(outputs["PublishStatesTable"], snowflake.client("dynamodb"))
    until(lambda: _state(states) == State.SYNCED, seconds=30)
    assert snowflake.metadata() == newest

    _rotate(snowflake)
    table = lake.load_table((NAME, "trades"))
    table.append(ROWS)
    _reconcile(snowflake)  # its announcement was lost
    assert snowflake.metadata() == table.metadata_location

    lake.drop_table((NAME, "trades"))
    destroy(snowflake.app(), PROGRESS)
    assert snowflake.objects() == before


@pytest.mark.long
def test_the_words_of_a_refusal_end_the_deploy_and_leave_what_was_there(snowflake: Snowflake) -> None:
    taken = """CREATE USER IF NOT EXISTS "CALVE_REFUSED" TYPE = SERVICE COMMENT = 'of somebody'"""
    snowflake.api.account.execute("DEPLOYER", "ACCOUNTADMIN", taken)
    before = snowflake.objects()
    with pytest.raises(Fatal, match=r'Snowflake has a user "CALVE_REFUSED" already'):
        snowflake.app("refused").deploy(PROGRESS)
    destroy(snowflake.app("refused"), PROGRESS)
    assert snowflake.objects() == before


@pytest.mark.full
def test_the_words_of_a_verification_end_the_deploy(snowflake: Snowflake) -> None:
    """What a real CloudFormation asks for next, the delete of what failed, is in `unit/lambdas/snowflake/test_handler.py`."""
    snowflake.api.account.reach = snowflake.api.account.iceberg.reach = Reach(snowflake.client, "eu-west-9")
    with pytest.raises(Fatal, match=r"(?s)CALVE_UNSEEN_CATALOG.*not authorized to perform: glue:GetCatalog"):
        snowflake.app("unseen").deploy(PROGRESS)
    destroy(snowflake.app("unseen"), PROGRESS)


def _follow(snowflake: Snowflake, lake: Catalog) -> str:
    """A new table, then a burst of commits, each announced twice; returns where the table is then."""
    table = lake.create_table((NAME, "trades"), ROWS.schema)
    table.append(ROWS)
    snowflake.announce()
    until(lambda: snowflake.metadata() == table.metadata_location, seconds=60)
    for _ in range(5):
        table.append(ROWS)
        snowflake.announce(times=2)
    until(lambda: snowflake.metadata() == table.metadata_location, seconds=60)
    refreshed = [sql for _, sql in snowflake.api.account.done if sql.endswith("REFRESH")]
    assert 1 <= len(refreshed) <= 5
    return str(table.metadata_location)


def _state(states: PublishStates) -> State | None:
    found = states.find(Target.SNOWFLAKE, f"{NAME}.trades")
    return found.state if found else None


def _function(snowflake: Snowflake, part: str) -> str:
    pages = snowflake.client("lambda").get_paginator("list_functions").paginate()
    names = [each["FunctionName"] for page in pages for each in page["Functions"]]
    (name,) = [each for each in names if re.match(rf"{NAME}-publish-.*{part}", each)]
    return str(name)


def _invoke(snowflake: Snowflake, part: str, event: dict[str, Any]) -> None:
    answer = snowflake.client("lambda").invoke(
        FunctionName=_function(snowflake, part), Payload=json.dumps(event).encode()
    )
    assert "FunctionError" not in answer, answer["Payload"].read()


def _reconcile(snowflake: Snowflake) -> None:
    _invoke(snowflake, "Reconcile", {})


def _rotate(snowflake: Snowflake) -> None:
    """What Secrets Manager does, step by step: the emulator does not."""
    secrets = snowflake.client("secretsmanager")
    (secret,) = [
        each["ARN"]
        for each in secrets.list_secrets()["SecretList"]
        if each.get("Description", "").endswith(f"for {NAME}")
    ]
    old = secrets.get_secret_value(SecretId=secret)["SecretString"]
    version = "11111111-2222-3333-4444-555555555555"
    secrets.put_secret_value(SecretId=secret, ClientRequestToken=version, VersionStages=["AWSPENDING"])
    for step in ("createSecret", "setSecret", "testSecret", "finishSecret"):
        _invoke(snowflake, "Rotation", {"SecretId": secret, "ClientRequestToken": version, "Step": step})
    assert secrets.get_secret_value(SecretId=secret)["SecretString"] != old
    assert len(snowflake.api.account.public_keys("CALVE_SNOWY")) == 2
