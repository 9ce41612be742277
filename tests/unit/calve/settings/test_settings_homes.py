"""`lake.catalog`: what reaches the job and its Spark session, and what contradicts itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calve.config.job import Job, RestCatalog, S3Tables
from calve.config.spark_conf import OWN_SETTINGS, spark_conf
from calve.errors import ConfigError
from calve.settings import load_deployment

CATALOG = "spark.sql.catalog.lake"
BUCKET = "arn:aws:s3tables:eu-west-1:111122223333:bucket/trading"
BEFORE = (
    "name: t\nkafka: {bootstrap_servers: 'b:1'}\nregistry: {url: https://r}\ntables: {trades: {topic: t}}\n"
)
REST = "lake: {catalog: {type: rest, uri: https://c/api, warehouse: w, secret: aws:c, scope: S}}"
S3 = f"lake: {{catalog: {{type: s3tables, table_bucket: '{BUCKET}'}}}}"


def job(folder: Path, text: str) -> Job:
    (path := folder / "calve.yaml").write_text(BEFORE + text)
    return load_deployment(path).jobs[0].settings


def conf(folder: Path, text: str) -> dict[str, str]:
    found = spark_conf(job(folder, text))
    assert [name for name in found if not OWN_SETTINGS.fullmatch(name)] == []
    return {name.removeprefix(f"{CATALOG}."): value for name, value in found.items()}


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        job(folder, text)
    return re.sub("(?<=[^\\n]) {3,}", "  ", str(caught.value))


def test_glue_is_the_home_of_tables_that_name_none(tmp_path: Path) -> None:
    for text in ("", "lake: {catalog: {type: glue}}"):
        assert job(tmp_path, text).lake.catalog is None
        assert conf(tmp_path, text)["catalog-impl"].endswith("GlueCatalog")


def test_a_rest_catalog_has_its_properties_and_no_credential(tmp_path: Path) -> None:
    made = job(tmp_path, REST)
    assert made.lake.catalog == RestCatalog("https://c/api", "w", "aws:c", "S")
    assert Job.from_json(made.to_json()) == made
    found = conf(tmp_path, REST)
    wanted = {
        "type": "rest",
        "uri": "https://c/api",
        "warehouse": "w",
        "scope": "S",
        "oauth2-server-uri": "https://c/api/v1/oauth/tokens",
        "calve.files": "s3://made-by-the-stack",
        "calve.service": "rest",
    }
    assert wanted.items() <= found.items()
    assert {"catalog-impl", "credential"}.isdisjoint(found)


def test_s3_tables_are_asked_by_signed_requests_in_the_region_of_the_bucket(tmp_path: Path) -> None:
    made = job(tmp_path, S3)
    assert made.lake.catalog == S3Tables(
        BUCKET, "https://s3tables.eu-west-1.amazonaws.com/iceberg", "eu-west-1"
    )
    assert made.lake.region == "eu-west-1"
    assert load_deployment(tmp_path / "calve.yaml").region == "eu-west-1"
    assert Job.from_json(made.to_json()) == made
    found = conf(tmp_path, S3)
    wanted = {
        "warehouse": BUCKET,
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "s3tables",
        "s3.delete-enabled": "false",
        "calve.service": "s3tables",
    }
    assert wanted.items() <= found.items()


def test_a_made_key_is_of_the_lakes_bucket_and_not_of_the_table_bucket(tmp_path: Path) -> None:
    for text, sends in ((REST, True), (S3, False)):
        made = job(tmp_path, text)
        keyed = replace(made, lake=replace(made.lake, kms_key="arn:k"))
        assert (f"{CATALOG}.s3.sse.key" in spark_conf(keyed)) is sends


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lake: {catalog: {}}", "lake.catalog.type  is missing"),
        ("lake: {catalog: {type: hive}}", 'lake.catalog.type  "hive" cannot be used'),
        ("lake: {catalog: {type: rest}}", "lake.catalog.uri  is missing. Add `uri:`"),
        ("lake: {catalog: {type: s3tables}}", "lake.catalog.table_bucket  is missing"),
        ("lake: {catalog: {type: glue, uri: https://c}}", "lake.catalog.uri  has no use with `type: glue`"),
        (
            f"lake: {{catalog: {{type: rest, uri: https://c, table_bucket: '{BUCKET}'}}}}",
            "lake.catalog.table_bucket  has no use with `type: rest`",
        ),
        ("lake: {catalog: {type: rest, uri: https://c, scope: S}}", "lake.catalog.scope  has no use without `secret`"),
        (
            "lake: {catalog: {type: rest, uri: https://c, secret: env:C}}",
            "lake.catalog.secret  cannot be read where the deployed job runs",
        ),
        (
            "lake: {catalog: {type: s3tables, table_bucket: trading}}",
            'lake.catalog.table_bucket  "trading" is not an ARN of a table bucket',
        ),
        (S3.replace("lake: {", "lake: {region: us-east-1, "), "lake.region  us-east-1 is not that of the table bucket"),
        (S3.replace("lake: {", "lake: {database: a-b, "), 'lake.database  "a-b" cannot be a namespace of S3 Tables'),
        (S3.replace("lake: {", "lake: {kms_key: 'arn:k', "), "lake.kms_key  has no use"),
        (REST.replace("lake: {", "lake: {import_database: true, "), "lake.import_database  has no use"),
        (REST.replace("lake: {", "lake: {namespace: cluster_id, "), "lake.namespace  needs the Glue Data Catalog"),
        (REST + "\nnetwork: {}", "lake.catalog.uri  cannot be reached from the VPC that the stack makes"),
        (REST + "\npublish: {delta: {}}", "publish  publishes tables of the Glue Data Catalog"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_fix(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


def test_the_name_of_a_deployment_may_be_no_namespace_of_s3_tables(tmp_path: Path) -> None:
    (path := tmp_path / "calve.yaml").write_text(BEFORE.replace("name: t", "name: aws-t") + S3)
    with pytest.raises(ConfigError, match="begins with aws"):
        load_deployment(path)


def test_china_has_a_domain_of_its_own(tmp_path: Path) -> None:
    text = S3.replace("arn:aws:s3tables:eu-west-1", "arn:aws-cn:s3tables:cn-north-1")
    catalog = job(tmp_path, text).lake.catalog
    assert isinstance(catalog, S3Tables)
    assert catalog.uri == "https://s3tables.cn-north-1.amazonaws.com.cn/iceberg"


def test_older_settings_have_no_catalog(tmp_path: Path) -> None:
    made: Any = job(tmp_path, "")
    raw = json.loads(made.to_json())
    del raw["lake"]["catalog"]
    assert Job.from_json(json.dumps(raw)) == made
