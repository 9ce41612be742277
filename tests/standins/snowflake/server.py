"""The SQL API over HTTP on loopback: tokens, ids of requests, answers that come later, overload.

https://docs.snowflake.com/en/developer-guide/sql-api/reference
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cli.embedded.processes import HOST
from tests.standins.snowflake.account import Account, Rows
from tests.standins.snowflake.refusals import Refusal
from tests.standins.snowflake.tokens import Unauthorized, user_of

PATH = "/api/v2/statements"
SLOW = ("VERIFY", "CREATE ICEBERG TABLE", "REFRESH")
"""Statements that hold these are answered by 202 first."""

Answer = tuple[int, dict[str, Any]]


@dataclass
class Faults:
    """What goes wrong on purpose. overloaded, expired: so many requests get 429, or 401.

    lost: so many answers get lost after the statement was done. dies_at: at the statement of this number (from 1) the
    connection breaks for good, after the statement was done or, if `before`, without it; `statements` counts them.
    """

    overloaded: int = 0
    expired: int = 0
    lost: int = 0
    dies_at: int | None = None
    before: bool = False
    statements: int = 0

    @property
    def dead(self) -> bool:
        return self.dies_at is not None and self.statements >= self.dies_at


class Cut(Exception):
    """The connection breaks without an answer."""


@dataclass
class Api:
    """The API of one account. refused: why tokens were refused."""

    account: Account
    faults: Faults = field(default_factory=Faults)
    refused: list[str] = field(default_factory=list)
    _answers: dict[str, Answer] = field(default_factory=dict)
    _pending: dict[str, Answer] = field(default_factory=dict)

    def ask(self, path: str, token: str, body: dict[str, Any] | None) -> Answer:
        """Answer a request.

        Raises:
            Cut: there is no answer.
        """
        if self.faults.dead:
            raise Cut
        if self.faults.overloaded:
            self.faults.overloaded -= 1
            return 429, {"code": "000429", "message": "Too many requests."}
        try:
            if self.faults.expired:
                self.faults.expired -= 1
                raise Unauthorized("expired")
            user = user_of(token, self.account)
        except Unauthorized as error:
            self.refused.append(str(error))
            return 401, {"code": "390144", "message": f"JWT token is invalid. [{uuid.uuid4()}]"}
        url = urlsplit(path)
        if body is None:
            return self._poll(url.path.removeprefix(f"{PATH}/"))
        if url.path != PATH:
            return 404, {"code": "390404", "message": "no such resource"}
        return self._statement(user, parse_qs(url.query), body)

    def _statement(self, user: str, query: dict[str, list[str]], body: dict[str, Any]) -> Answer:
        (request,) = query["requestId"]
        uuid.UUID(request)
        if request in self._answers:
            if query.get("retry") != ["true"]:
                return 422, {"code": "000709", "message": "Duplicate requestId", "sqlState": "42000"}
            return self._answers[request]
        self.faults.statements += 1
        if self.faults.dead and self.faults.before:
            raise Cut
        answer = self._answers[request] = self._do(user, body)
        if self.faults.dead:
            raise Cut
        if self.faults.lost:
            self.faults.lost -= 1
            raise Cut
        return answer

    def _do(self, user: str, body: dict[str, Any]) -> Answer:
        sql, handle = body["statement"], str(uuid.uuid4())
        try:
            rows = self.account.execute(user, body["role"], sql)
        except Refusal as error:
            return 422, {
                "code": error.code,
                "message": error.message,
                "sqlState": error.state,
                "statementHandle": handle,
            }
        answer = 200, _result(rows, handle)
        if not any(word in sql.upper() for word in SLOW):
            return answer
        self._pending[handle] = answer
        status = {
            "statementHandle": handle,
            "statementStatusUrl": f"{PATH}/{handle}?requestId={uuid.uuid4()}",
        }
        return 202, {"code": "333334", "message": "Asynchronous execution in progress.", **status}

    def _poll(self, handle: str) -> Answer:
        if handle not in self._pending:
            return 404, {"code": "390404", "message": "no such statement"}
        return self._pending[handle]


def _result(rows: Rows, handle: str) -> dict[str, Any]:
    names = list(rows[0]) if rows else []
    return {
        "code": "090001",
        "message": "Statement executed successfully.",
        "statementHandle": handle,
        "resultSetMetaData": {
            "numRows": len(rows),
            "rowType": [{"name": name, "type": "text"} for name in names],
            "partitionInfo": [{"rowCount": len(rows)}],
        },
        "data": [[row[name] for name in names] for row in rows],
    }


@contextmanager
def serving(api: Api, port: int = 0) -> Iterator[str]:
    """Serve the API, on a free port unless one is named; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self._answer(None)

        def _answer(self, body: dict[str, Any] | None) -> None:
            kind, _, token = self.headers.get("Authorization", "").partition(" ")
            if kind != "Bearer" or self.headers.get("X-Snowflake-Authorization-Token-Type") != "KEYPAIR_JWT":
                token = ""
            try:
                status, answer = api.ask(self.path, token, body)
            except Cut:
                self.close_connection = True
                return
            raw = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer((HOST, port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
