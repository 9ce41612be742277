"""Engines whose tables another service than Glue holds: a REST catalog behind OAuth, and one that refuses what S3 Tables does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from calve.config.job import Catalog, RestCatalog, S3Tables, Service
from calve.config.spark_conf import CATALOG, spark_conf
from cli.embedded import aws
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.process.session import credential
from tests.integration.support.engine import Engine
from tests.integration.support.servers.gate import Answer, Gate, Request
from tests.integration.support.servers.rest_catalogs import (
    CLIENT,
    SCOPE,
    SECRET,
    OAuthGate,
    rest_catalog,
)

TABLES = "rest_catalog/"
"""Where the reference server places tables in the emulator's bucket."""
TABLE_BUCKET = f"arn:aws:s3tables:{aws.REGION}:123456789012:bucket/trading"
SIGNED = re.compile(rf"AWS4-HMAC-SHA256 Credential=\S+/{aws.REGION}/s3tables/aws4_request,.*")
NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,254}")


class FilesGate(Gate):
    """Before S3: nobody lists or deletes the files of tables, as in a table bucket."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.refused: list[str] = []

    def answer(self, request: Request) -> Answer | None:
        place = urlsplit(request.path)
        _, _, key = place.path.lstrip("/").partition("/")
        query = parse_qs(place.query, keep_blank_values=True)
        asks = {
            "DELETE": key.startswith(TABLES) and "uploadId" not in query,
            "POST": "delete" in query and f"<Key>{TABLES}".encode() in request.body,
            "GET": any(each.startswith(TABLES) for each in query.get("prefix", ())),
        }
        if not asks.get(request.method):
            return self.pass_on(request)
        self.refused.append(f"{request.method} {request.path}")
        return Answer(
            405, {"Content-Type": "application/xml"}, b"<Error><Code>MethodNotAllowed</Code></Error>"
        )


class S3TablesGate(Gate):
    """Before a real REST catalog: refuses what Amazon's guide says that the endpoint of S3 Tables refuses.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-integrating-open-source.html
    """

    def __init__(self, upstream: str, files: FilesGate) -> None:
        super().__init__(upstream)
        self.files = files
        self.refused: list[str] = []

    def answer(self, request: Request) -> Answer | None:
        if not SIGNED.fullmatch(request.headers.get("Authorization", "")):
            return self._refuse(403, "the request is not signed for s3tables")
        place = urlsplit(request.path)
        if place.path.endswith("/v1/config"):
            if parse_qs(place.query).get("warehouse") != [TABLE_BUCKET]:
                return self._refuse(400, "The specified table bucket ARN is not valid.")
            return self._config(request)
        prefix = f"/v1/{quote(TABLE_BUCKET, safe='')}/"
        if not place.path.startswith(prefix):
            return self._refuse(404, f"{place.path}: the prefix is not the table bucket")
        body = json.loads(request.body) if request.body else {}
        if problem := _problem(request.method, place.path.removeprefix(prefix), place.query, body):
            return self._refuse(400, problem)
        return self.pass_on(replace(request, path=request.path.replace(prefix, "/v1/", 1)))

    def _config(self, request: Request) -> Answer:
        given = self.pass_on(replace(request, path="/v1/config"))
        config = json.loads(given.body)
        config["defaults"] = {**config.get("defaults", {}), "prefix": quote(TABLE_BUCKET, safe="")}
        config.pop("endpoints", None)
        return Answer(200, given.headers, json.dumps(config).encode())

    def _refuse(self, status: int, why: str) -> Answer:
        self.refused.append(why)
        error = {"error": {"message": why, "type": "BadRequestException", "code": status}}
        return Answer(status, {"Content-Type": "application/json"}, json.dumps(error).encode())


def _problem(method: str, path: str, query: str, body: dict[str, Any]) -> str | None:
    if path.endswith("/metrics") or path.startswith(("transactions/", "views")):
        return f"{path} is not supported"
    if body.get("stage-create"):
        return "stage-create is not supported"
    if method == "POST" and path == "namespaces":
        if {*body.get("properties", {})} - {"owner"}:
            return "only the property owner is supported"
        if len(body["namespace"]) > 1:
            return "multilevel namespaces are not supported"
    if method == "POST" and path.endswith("/tables") and not NAME.fullmatch(body["name"]):
        return f"{body['name']} is no name of a table"
    if method == "DELETE" and "/tables/" in path and parse_qs(query).get("purgeRequested") != ["true"]:
        return "tables are dropped with purge alone"
    return None


@contextmanager
def rest_home(engine: Engine, folder: Path) -> Iterator[tuple[Engine, OAuthGate]]:
    """An engine whose tables are in a REST catalog behind OAuth."""
    secret = folder / "client.json"
    secret.write_text(json.dumps({"client_id": CLIENT, "client_secret": SECRET}))
    with rest_catalog(engine.stack, folder) as uri, OAuthGate(uri) as gate:
        home = RestCatalog(gate.url, secret=f"file:{secret}", scope=SCOPE)
        yield moved(engine, home), gate
        engine.lake._activate()


@contextmanager
def s3_tables_home(engine: Engine, folder: Path) -> Iterator[tuple[Engine, S3TablesGate]]:
    """An engine whose tables are in a stand-in of S3 Tables."""
    with (
        FilesGate(engine.stack.aws_endpoint) as files,
        rest_catalog(engine.stack, folder) as uri,
        S3TablesGate(uri, files) as gate,
    ):
        stack = replace(engine.stack, aws_endpoint=files.url)
        yield moved(replace(engine, stack=stack), S3Tables(TABLE_BUCKET, gate.url, aws.REGION)), gate
        engine.lake._activate()
        assert files.refused == []


@contextmanager
def at_home(engine: Engine, home: Service, folder: Path) -> Iterator[Engine]:
    """The engine whose tables this service holds."""
    if home == "glue":
        yield engine
        return
    with (rest_home if home == "rest" else s3_tables_home)(engine, folder) as (moved, _):
        yield moved


def moved(engine: Engine, home: Catalog) -> Engine:
    """With a session of its own, whose settings are those of a job of this home."""
    session = engine.spark.newSession()
    moved = replace(engine, spark=session, home=home, serializers={})
    prefix = f"spark.sql.catalog.{CATALOG}."
    for key in [each for each, _ in engine.spark.sparkContext.getConf().getAll() if each.startswith(prefix)]:
        session.conf.unset(key)
    job = moved.job()
    for key, value in (spark_conf(job) | credential(job.lake)).items():
        if key.startswith(prefix.rstrip(".")):
            session.conf.set(key, value)
    moved.lake = Lake(session, engine.lake.owner)
    return moved
