"""An Iceberg REST catalog behind OAuth, those who read through it, and tables of a lake to be published."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

import duckdb
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from calve.config.job import Lake
from cli.embedded import aws, elsewhere, processes
from cli.embedded.processes import HOST, free_ports
from cli.embedded.stack import Stack
from cli.lake import open_catalog
from cli.look.query.answer import connect
from tests.integration.support.servers.gate import Answer, Gate, Request

CLIENT, SECRET, SCOPE = "calve", "s3cret", "catalog"
INVALID_CLIENT = Answer(401, {"Content-Type": "application/json"}, b'{"error": "invalid_client"}')
UNAUTHORIZED = Answer(401, {}, b'{"error": {"message": "no", "type": "NotAuthorizedException", "code": 401}}')


class OAuthGate(Gate):
    """Lets nobody in without a token that it has given out; `uses` of each, if they are numbered."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.uses: int | None = None
        self.tokens: dict[str, int | None] = {}
        self.refused = 0
        self.instead: Callable[[Request], Answer | None] = self.pass_on

    def answer(self, request: Request) -> Answer | None:
        if urlsplit(request.path).path == "/v1/oauth/tokens":
            return self._token(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        left = self.tokens.get(token, 0)
        if left == 0:
            self.refused += 1
            return UNAUTHORIZED
        if left is not None:
            self.tokens[token] = left - 1
        return self.instead(request)

    def _token(self, request: Request) -> Answer:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        client = (form.get("client_id"), form.get("client_secret"))
        if (basic := request.headers.get("Authorization", "")).startswith("Basic "):
            id, _, secret = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
            client = (unquote_plus(id), unquote_plus(secret))
        if client != (CLIENT, SECRET) or form.get("scope") != SCOPE:
            return INVALID_CLIENT
        token = uuid.uuid4().hex
        self.tokens[token] = self.uses
        body = {"access_token": token, "token_type": "bearer", "expires_in": 3600}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())


@dataclass
class Tables:
    """A database of the lake."""

    stack: Stack
    database: str

    def lake(self) -> Lake:
        return Lake(
            self.database,
            f"s3://{self.stack.bucket}/published",
            endpoint=self.stack.aws_endpoint,
            region=self.stack.region,
        )

    def table(self, name: str) -> Table:
        """A new table of the lake, where the job would make it, with one commit."""
        lake = self.lake()
        catalog = open_catalog(lake)
        catalog.create_namespace_if_not_exists(
            self.database, {"location": f"{lake.warehouse}/{self.database}"}
        )
        made = catalog.create_table((self.database, name), pa.schema([("n", pa.int64())]))
        append(made)
        return made


@dataclass
class Published(Tables):
    """A catalog, and a database of the lake."""

    uri: str
    gate: OAuthGate

    def reader(self) -> RestCatalog:
        """PyIceberg, with OAuth."""
        return RestCatalog(
            "reader",
            uri=self.uri,
            credential=f"{CLIENT}:{SECRET}",
            scope=SCOPE,
            **{
                "oauth2-server-uri": f"{self.uri}/v1/oauth/tokens",
                "s3.endpoint": self.stack.aws_endpoint,
                "s3.access-key-id": aws.ACCESS_KEY,
                "s3.secret-access-key": aws.SECRET_KEY,
                "s3.region": self.stack.region,
            },
        )

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """DuckDB, with OAuth."""
        connection = connect(self.lake())
        connection.execute(
            f"CREATE SECRET published (TYPE iceberg, CLIENT_ID '{CLIENT}', CLIENT_SECRET '{SECRET}',"
            f" OAUTH2_SCOPE '{SCOPE}', OAUTH2_SERVER_URI '{self.uri}/v1/oauth/tokens')"
        )
        connection.execute(
            f"ATTACH '' AS published (TYPE iceberg, SECRET published, ENDPOINT '{self.uri}', ACCESS_DELEGATION_MODE 'none')"
        )
        return connection


def append(table: Table, rows: int = 3) -> None:
    table.append(pa.table({"n": list(range(rows))}))


@contextmanager
def rest_catalog(stack: Stack, folder: Path) -> Iterator[str]:
    """A catalog of its own as long as the block runs; `folder` holds what it knows. Its address, without `/v1`."""
    (port,) = free_ports(1)
    options = {"root": str(stack.root)}
    starting = elsewhere.start(stack, elsewhere.REST, port, options, folder=folder)
    try:
        processes.wait_until_ready([starting], deadline_s=elsewhere.READY_DEADLINE_S, on_ready=lambda _: None)
        yield f"http://{HOST}:{port}"
    finally:
        processes.stop(starting.process)


@contextmanager
def behind_oauth(stack: Stack, folder: Path) -> Iterator[Published]:
    with rest_catalog(stack, folder) as uri, OAuthGate(uri) as gate:
        yield Published(stack, f"published_{uuid.uuid4().hex[:8]}", gate.url, gate)


@dataclass
class Poller:
    """Loads a table again and again; what it is told is kept."""

    published: Published
    namespace: str
    table: str
    seen: list[tuple[int, int]] = field(default_factory=list)
    missing: int = 0
    failed: list[str] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def polling(self) -> Iterator[Poller]:
        thread = threading.Thread(target=self._poll)
        thread.start()
        try:
            yield self
        finally:
            self._end.set()
            thread.join()

    def _poll(self) -> None:
        reader = self.published.reader()
        while not self._end.is_set():
            try:
                found = reader.load_table((self.namespace, self.table)).metadata
            except NoSuchTableError:
                self.missing += 1
                continue
            except Exception as error:  # noqa: BLE001 told by the test
                self.failed.append(repr(error))
                continue
            state: Any = (found.last_sequence_number, found.last_updated_ms)
            self.seen.append(state)
