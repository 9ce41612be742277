"""Confluent Cloud's API keys on this machine, as its OpenAPI description has them (iam/v2, `ccloud-sdk-go-v2/apikeys`): strict
about who asks, what is sent and how a list is paged. A key opens its resource only some time after it was made.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEYS = "/iam/v2/api-keys"
WRITABLE = {"display_name", "description", "owner", "resource"}
LARGEST_PAGE = 3  # the real one is 100


@dataclass
class ConfluentCloud:
    """An organisation. `lose_answers`: so many keys are made of which the maker never hears. `slow`: logins that fail first."""

    admin: tuple[str, str] = ("CLOUDKEY", "cloud-secret")
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    lose_answers: int = 0
    slow: int = 0
    quota: int = 10
    requests: list[str] = field(default_factory=list)
    url: str = ""
    now: datetime = datetime(2026, 11, 1, tzinfo=UTC)

    def make(self, name: str, owner: str, resource: str) -> dict[str, Any]:
        key = f"KEY{len(self.secrets) + 1:04}"
        self.now += timedelta(days=1)
        self.secrets[key] = f"secret-of-{key}"
        self.keys[key] = {
            "api_version": "iam/v2",
            "kind": "ApiKey",
            "id": key,
            "metadata": {"self": f"{self.url}{KEYS}/{key}", "created_at": self.now.isoformat()},
            "spec": {
                "display_name": name,
                "description": "",
                "owner": self._reference(owner, "users"),
                "resource": self._reference(resource, "clusters"),
            },
        }
        return self.keys[key]

    def _reference(self, id: str, kind: str) -> dict[str, str]:
        return {"id": id, "related": f"{self.url}/{kind}/{id}", "resource_name": f"crn://{kind}={id}"}

    def opens(self, key: str, secret: str) -> bool:
        """Whether a server of the resource lets it in."""
        if self.slow:
            self.slow -= 1
            return False
        return key in self.keys and self.secrets[key] == secret

    def answer(self, method: str, target: str, authorization: str, body: bytes) -> tuple[int, Any]:
        path, _, query = target.partition("?")
        self.requests.append(f"{method} {path}")
        if path == "/subjects":  # a registry, which its own keys open
            key, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            return (200, []) if self.opens(key, secret) else (401, {"error_code": 401})
        pair = base64.b64encode(":".join(self.admin).encode()).decode()
        if authorization != f"Basic {pair}":
            return 401, _failure(401, "user_unauthenticated")
        if path == KEYS and method == "GET":
            return self._list(dict(urllib.parse.parse_qsl(query, strict_parsing=True)))
        if path == KEYS and method == "POST":
            return self._create(json.loads(body))
        key = path.removeprefix(f"{KEYS}/")
        if not path.startswith(f"{KEYS}/") or key not in self.keys:
            return 404, _failure(404, "resource_not_found")
        if method == "DELETE":
            del self.keys[key]
            return 204, None
        return 200, self.keys[key]

    def _list(self, query: dict[str, str]) -> tuple[int, Any]:
        if unknown := set(query) - {"spec.owner", "spec.resource", "page_size", "page_token", "show_expired"}:
            return 400, _failure(400, f"invalid_filter {unknown}")
        if not 0 < int(query.get("page_size", "10")) <= 100:
            return 400, _failure(400, "invalid_page_size")
        found = [
            each
            for each in self.keys.values()
            if query.get("spec.owner", each["spec"]["owner"]["id"]) == each["spec"]["owner"]["id"]
            and query.get("spec.resource", each["spec"]["resource"]["id"]) == each["spec"]["resource"]["id"]
        ]
        begin = int(query.pop("page_token", "0"))
        end = begin + min(int(query.get("page_size", "10")), LARGEST_PAGE)
        following = urllib.parse.urlencode(query | {"page_token": str(end)})
        metadata: dict[str, Any] = {"first": f"{self.url}{KEYS}", "total_size": len(found)}
        if end < len(found):
            metadata["next"] = f"{self.url}{KEYS}?{following}"
        page = {"api_version": "iam/v2", "kind": "ApiKeyList", "metadata": metadata, "data": found[begin:end]}
        return 200, page

    def _create(self, body: dict[str, Any]) -> tuple[int, Any]:
        spec = body.get("spec", {})
        if set(body) != {"spec"} or set(spec) - WRITABLE or not spec.get("owner", {}).get("id"):
            return 422, _failure(422, "invalid_configuration")
        if set(spec["owner"]) - {"id", "environment"} or set(spec.get("resource", {})) - {
            "id",
            "environment",
        }:
            return 422, _failure(422, "read_only")
        if len(self.keys) >= self.quota:
            return 402, _failure(402, "quota_exceeded")
        made = self.make(spec["display_name"], spec["owner"]["id"], spec["resource"]["id"])
        if self.lose_answers:
            self.lose_answers -= 1
            return 500, _failure(500, "out_of_gas")
        return 202, made | {"spec": made["spec"] | {"secret": self.secrets[made["id"]]}}


def _failure(status: int, code: str) -> dict[str, Any]:
    return {"errors": [{"status": str(status), "code": code, "title": code, "detail": code}]}


@contextmanager
def serving(cloud: ConfluentCloud) -> Iterator[ConfluentCloud]:
    """The organisation at a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            authorization = self.headers.get("Authorization", "")
            status, body = cloud.answer(self.command, self.path, authorization, self.rfile.read(length))
            text = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield cloud
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
