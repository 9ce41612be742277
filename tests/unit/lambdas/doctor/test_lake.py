"""What is wrong with the lake, the secrets or the clock is a row with its cure."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto import mock_aws

from calve.config.job import RestCatalog, S3Tables
from calve.errors import Fatal
from lambdas.doctor.finding import Finding
from lambdas.doctor.lake import bucket, catalog, clock, formation, refused, secrets, skewed, tables

Answering = Callable[[dict[str, tuple[int, Any]]], "Server"]
REGION = "us-east-1"
METADATA = {"metadata_location": "s3://lake/t/trades/metadata/1.json", "table_type": "ICEBERG"}


def client(service: str) -> Any:
    return boto3.client(service, REGION)


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield


def refusing(service: str, operation: str, code: str) -> Any:
    """Clients of which one refuses one call."""
    stubbed = client(service)
    stubber = Stubber(stubbed)
    stubber.add_client_error(operation, code)
    stubber.activate()
    return lambda name: stubbed if name == service else client(name)


def governed(*roles: str) -> None:
    """An account in which Lake Formation governs the database, and these roles have grants on it."""
    asked = client("lakeformation")
    asked.put_data_lake_settings(
        DataLakeSettings={"CreateDatabaseDefaultPermissions": [], "CreateTableDefaultPermissions": []}
    )
    client("glue").create_database(DatabaseInput={"Name": "trading"})
    for role in roles:
        who = {"DataLakePrincipalIdentifier": f"arn:aws:iam::123456789012:role/{role}"}
        on: Any = {"Database": {"Name": "trading"}}
        asked.grant_permissions(Principal=who, Resource=on, Permissions=["DESCRIBE"])


def test_lake_formation_that_leaves_all_to_iam() -> None:
    client("glue").create_database(DatabaseInput={"Name": "trading"})
    seen = formation(client, "trading", "trading")
    assert seen == Finding("lake formation", "ok", "leaves trading to IAM")


@pytest.mark.parametrize(
    ("roles", "state", "detail"),
    [
        ((), "warn", "shows no grant to a role of trading-ingest"),
        (("trading-exports-a", "trading2-ingest-main"), "warn", "shows no grant to a role of trading-ingest"),
        (("trading-ingest-mainRole", "analyst"), "ok", "roles of trading-ingest with grants: 1"),
    ],
)
def test_lake_formation_that_governs(roles: tuple[str, ...], state: str, detail: str) -> None:
    governed(*roles)
    seen = formation(client, "trading", "trading")
    assert (seen.state, detail in seen.detail) == (state, True)
    assert ("docs/before-a-deploy.md#lake-formation" in seen.cure) is (state == "warn")


def test_lake_formation_that_may_not_be_asked_is_no_fault() -> None:
    clients = refusing("lakeformation", "get_data_lake_settings", "AccessDeniedException")
    assert formation(clients, "trading", "trading").state == "absent"


def test_a_refusal_of_lake_formation_has_its_own_cure() -> None:
    said = {
        "Code": "AccessDeniedException",
        "Message": "Insufficient Lake Formation permission(s): Required X",
    }
    seen = refused(
        "database", ClientError({"Error": said}, "GetDatabase"), "database trading", "glue:GetDatabase"
    )
    assert seen.detail == "Lake Formation refuses database trading to this role"
    assert "docs/before-a-deploy.md#lake-formation" in seen.cure


def test_a_bucket_that_is_there() -> None:
    client("s3").create_bucket(Bucket="lake")
    assert bucket(client, "s3://lake/team", REGION) == Finding("bucket", "ok", "lake may be listed")


@pytest.mark.parametrize(
    ("code", "detail", "cure"),
    [
        (
            "NoSuchBucket",
            "there is no bucket lake in this account and region",
            "make it, or correct its name",
        ),
        ("AccessDenied", "bucket lake may not be read: AccessDenied", "allow s3:ListBucket on it"),
        ("SlowDown", "bucket lake cannot be read: SlowDown", ""),
    ],
)
def test_a_bucket_that_is_not_there_or_not_to_be_read(code: str, detail: str, cure: str) -> None:
    found = bucket(refusing("s3", "list_objects_v2", code), "s3://lake", REGION)
    assert (found.state, found.detail) == ("fail", detail)
    assert found.cure.startswith(cure)


@pytest.mark.parametrize(("code", "state"), [("AccessDenied", "absent"), ("NoSuchBucket", "fail")])
def test_an_operator_need_not_list_the_bucket(code: str, state: str) -> None:
    found = bucket(refusing("s3", "list_objects_v2", code), "s3://lake", REGION, for_operator=True)
    assert found.state == state
    assert ("calve doctor --remote" in found.cure) == (state == "absent")


def test_a_bucket_of_another_region_names_the_line_to_change() -> None:
    stubbed = client("s3")
    answer = {"ResponseMetadata": {"HTTPHeaders": {"x-amz-bucket-region": "eu-west-1"}}}
    with Stubber(stubbed) as stubber:
        stubber.add_response("list_objects_v2", answer)
        found = bucket(lambda _: stubbed, "s3://lake", REGION)
    assert (found.state, found.detail) == ("fail", "lake is in eu-west-1, the deployment in us-east-1")
    assert found.cure.startswith("set `lake.region: eu-west-1`")


@pytest.mark.parametrize(("skew_s", "state"), [(0, "ok"), (-29, "ok"), (31, "warn"), (-301, "fail")])
def test_a_clock_that_is_off(skew_s: float, state: str) -> None:
    assert skewed(skew_s).state == state
    assert (skewed(skew_s).cure != "") == (state != "ok")


def test_the_clock_is_told_by_a_refusal_too() -> None:
    late = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)

    def refuse() -> Any:
        metadata = {"HTTPHeaders": {"date": late}}
        raise ClientError({"Error": {"Code": "SignatureDoesNotMatch"}, "ResponseMetadata": metadata}, "X")

    found = clock(refuse)
    assert found.state == "fail"
    assert found.detail.endswith("behind AWS's")
    assert clock(lambda: {"ResponseMetadata": {"HTTPHeaders": {}}}).state == "absent"


def rows(names: list[str], of: Any = client) -> dict[str, tuple[str, str]]:
    return {each.check: (each.state, each.detail) for each in tables(of, "t", names)}


def test_tables_are_read_down_to_their_metadata_file() -> None:
    glue = client("glue")
    assert rows(["trades"]) == {"database": ("fail", "there is no database t in this account and region")}
    glue.create_database(DatabaseInput={"Name": "t"})
    glue.create_table(DatabaseName="t", TableInput={"Name": "trades", "Parameters": METADATA})
    client("s3").create_bucket(Bucket="lake")
    assert rows(["trades"])["table trades"] == ("fail", "there is no table trades in this account and region")
    client("s3").put_object(Bucket="lake", Key="t/trades/metadata/1.json", Body=b"{}")
    assert rows(["trades", "users"]) == {
        "database": ("ok", "t"),
        "tables": ("ok", "1 may be read"),
        "tables not made": ("absent", "users"),
    }
    refused = tables(refusing("s3", "get_object", "AccessDenied"), "t", ["trades"])
    assert [each.cure for each in refused if each.state == "fail"] == [
        "allow glue:GetTable, s3:GetObject and kms:Decrypt for it"
    ]


@dataclass
class Server:
    """Answers some paths, and HTTP 404 all others; `authorizations`: the header of each request."""

    url: str
    authorizations: list[str | None] = field(default_factory=list)


@pytest.fixture
def answering() -> Iterator[Answering]:
    with ExitStack() as opened:

        def start(answers: dict[str, tuple[int, Any]]) -> Server:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    found.authorizations.append(self.headers.get("Authorization"))
                    self.rfile.read(int(self.headers.get("Content-Length", 0)))
                    status, body = answers.get(self.path, (404, {}))
                    self.send_response(status)
                    self.end_headers()
                    self.wfile.write(json.dumps(body).encode())

                do_POST = do_GET

                def log_message(self, *_: object) -> None:
                    pass

            server = opened.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            opened.callback(server.shutdown)
            found = Server(f"http://127.0.0.1:{server.server_port}")
            return found

        yield start


def test_a_table_bucket_is_asked_for() -> None:
    made = client("s3tables").create_table_bucket(name="trading")["arn"]
    (found,) = catalog(client, S3Tables(made, "https://s3tables", REGION))
    assert (found.check, found.state, found.detail) == ("catalog", "ok", made)
    (missing,) = catalog(client, S3Tables(f"{made}s", "https://s3tables", REGION))
    assert missing.state == "fail"


def test_a_rest_catalog_is_asked_with_a_token(answering: Answering) -> None:
    answers = {
        "/v1/oauth/tokens": (200, {"access_token": "t0ken", "expires_in": 3600}),
        "/v1/config?warehouse=w": (200, {}),
    }
    server = answering(answers)
    client("secretsmanager").create_secret(Name="c", SecretString='{"client_id": "i", "client_secret": "s"}')
    settings = RestCatalog(server.url, "w", "aws:c")
    (found,) = catalog(client, settings)
    assert (found.check, found.state, found.detail) == ("catalog", "ok", server.url)
    assert server.authorizations == ["Basic aTpz", "Bearer t0ken"]
    (unknown,) = catalog(client, replace(settings, warehouse="x"))
    assert (unknown.state, "HTTP 404" in unknown.detail) == ("fail", True)
    (open_,) = catalog(client, RestCatalog(server.url, "w"))
    assert (open_.state, server.authorizations[-1]) == ("ok", None)


def test_a_rest_catalog_that_refuses_the_client(answering: Answering) -> None:
    server = answering({"/v1/oauth/tokens": (401, {"error": "invalid_client"})})
    client("secretsmanager").create_secret(Name="c", SecretString='{"client_id": "i", "client_secret": "s"}')
    with pytest.raises(Fatal, match="refused the client") as caught:
        list(catalog(client, RestCatalog(server.url, secret="aws:c")))
    assert "lake.catalog" in str(caught.value)


def test_secrets_are_read_and_never_shown() -> None:
    client("secretsmanager").create_secret(Name="here", SecretString="a password")
    uses = [("kafka", "aws:here"), ("registry", "aws:there"), ("masking", "env:KEYS")]
    found = list(secrets(client, uses))
    assert [(each.check, each.state) for each in found] == [
        ("secret for registry", "fail"),
        ("secrets", "ok"),
    ]
    assert "there is no secret there" in found[0].detail
    assert "a password" not in str(found)
    (denied,) = secrets(refusing("secretsmanager", "get_secret_value", "AccessDeniedException"), uses[:1])
    assert denied.cure == "allow secretsmanager:GetSecretValue on it (and kms:Decrypt on its key)"
