from dataclasses import replace
from pathlib import Path

import pytest

from calve.config.publishing import OpenCatalog, Snowflake, Warehouse
from calve.errors import ConfigError
from calve.settings import load_deployment

SOURCES = "kafka: {bootstrap_servers: broker:9092}\nregistry: {url: https://registry}\n"
NEEDED = "account: myorg-my_account, user: deployer, secret: aws:calve/snowflake"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def snowflake(more: str = "") -> Snowflake:
    text = f"name: my-trading\n{SOURCES}tables: {{t: {{topic: t}}}}\npublish: {{snowflake: {{{NEEDED}{more}}}}}\n"
    Path("calve.yaml").write_text(text)
    publish = load_deployment(Path("calve.yaml")).publish
    assert publish
    assert publish.snowflake
    return publish.snowflake


def test_names_come_from_the_deployments_in_capitals() -> None:
    found = snowflake()
    assert found == Snowflake(
        account="myorg-my_account",
        url="https://myorg-my-account.snowflakecomputing.com",
        user="DEPLOYER",
        secret="aws:calve/snowflake",
        admin_role="ACCOUNTADMIN",
        database="MY_TRADING",
        schema="MY_TRADING",
        warehouse=None,
        reader="CALVE_MY_TRADING_READER",
        publisher="CALVE_MY_TRADING_PUBLISHER",
        service_user="CALVE_MY_TRADING",
        volume="CALVE_MY_TRADING_VOLUME",
        integration="CALVE_MY_TRADING_CATALOG",
    )
    assert (found.refresh_s, found.rotate_after_days, found.catalog) == (60, 30, "glue_rest")


def test_everything_can_be_named_and_goes_through_json() -> None:
    found = snowflake(
        ", database: lake, schema: raw, warehouse: {size: small, auto_suspend: 5m}, reader_role: analysts"
        ", refresh_interval: 2m, rotate_after_days: 7, catalog: open_catalog"
        ", open_catalog: {uri: https://o.example.com/polaris/api/catalog, warehouse: cat, secret: aws:oc}"
    )
    assert (found.database, found.schema, found.reader) == ("LAKE", "RAW", "ANALYSTS")
    assert found.warehouse == Warehouse("CALVE_MY_TRADING", "SMALL", 300)
    assert found.open_catalog == OpenCatalog("https://o.example.com/polaris/api/catalog", "cat", "aws:oc")
    assert Snowflake.from_json(found.to_json()) == found
    assert Snowflake.from_json(replace(found, warehouse=None, open_catalog=None).to_json()).warehouse is None


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        snowflake(
            ", catalog: glue, iam_user_arn: 'arn:aws:iam::123456789012:user/x', tables: linked_database"
            ", schema: raw, open_catalog: {uri: https://o.example.com, warehouse: c, secret: aws:oc}"
        )
    message = str(caught.value)
    for part in ("iam_user_arn", "tables", "schema", "open_catalog"):
        assert f"publish.snowflake.{part} " in message


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (", database: 'a\"; drop'", "is not a name for Snowflake"),
        (", refresh_interval: 5s", "publish.snowflake.refresh_interval"),
        (", catalog: open_catalog", "is missing: the catalog is there"),
        (", iam_user_arn: me", "is not an ARN of an IAM user"),
        (", warehouse: {size: huge}", "xsmall"),
    ],
)
def test_what_cannot_be_is_refused(more: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        snowflake(more)
