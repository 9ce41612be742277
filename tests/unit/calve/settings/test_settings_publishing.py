"""`publish.iceberg_rest` of calve.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.config.publishing import CatalogBootstrap, IcebergRest, Publish
from calve.errors import ConfigError
from calve.names import TableName
from calve.settings import load_deployment

BASE = """\
name: trading
kafka: {bootstrap_servers: "broker:9093"}
registry: {url: "https://registry.example.com"}
tables: {trades: {topic: trades}, "shop_{1}": {topics: 'shop\\.(.*)'}}
publish:
  iceberg_rest: """


def loaded(folder: Path, section: str) -> Publish:
    (file := folder / "calve.yaml").write_text(BASE + section)
    found = load_deployment(file).publish
    assert found is not None
    return found


def refused(folder: Path, section: str) -> str:
    with pytest.raises(ConfigError) as error:
        loaded(folder, section)
    return error.value.message


def test_a_catalog_that_is_there(tmp_path: Path) -> None:
    found = loaded(
        tmp_path, '{uri: "https://c.example.com/", secret: "aws:c", scope: catalog, namespace: market}'
    )
    assert found.tables == (TableName("trading", "trades"),)
    assert found.patterns == ("shop_[a-z0-9_]*",)
    assert found.iceberg_rest == IcebergRest(
        "https://c.example.com", secret="aws:c", scope="catalog", namespace="market"
    )
    assert IcebergRest.from_json(found.iceberg_rest.to_json()) == found.iceberg_rest


def test_a_catalog_that_polaris_makes(tmp_path: Path) -> None:
    section = '{uri: "https://p.example.com/api/catalog", warehouse: w, bootstrap: {secret: "aws:admin"}}'
    found = loaded(tmp_path, section).iceberg_rest
    assert found == IcebergRest(
        "https://p.example.com/api/catalog",
        warehouse="w",
        update="notifications",
        bootstrap=CatalogBootstrap("aws:admin", "https://p.example.com/api/management/v1"),
    )
    assert IcebergRest.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ('{uri: "https://c", scope: catalog}', "scope  has no use without `secret`"),
        ('{uri: "https://c", secret: "env:C"}', "secret  cannot be read where the deployed job runs"),
        ('{uri: "https://c", namespace: "a.b"}', 'namespace  "a.b" is not a namespace'),
        ('{uri: "https://c", update: overwrite}', "update"),
        (
            '{uri: "https://c/api/catalog", bootstrap: {secret: "aws:a"}}',
            "warehouse  is missing: the catalog gets a name",
        ),
        (
            '{uri: "https://c/api/catalog", warehouse: w, secret: "aws:b", bootstrap: {secret: "aws:a"}}',
            "secret  is made by `bootstrap`",
        ),
        (
            '{uri: "https://c", warehouse: w, bootstrap: {secret: "aws:a"}}',
            "bootstrap.management_uri  is missing",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, section: str, words: str) -> None:
    assert f"publish.iceberg_rest.{words}" in refused(tmp_path, section)
