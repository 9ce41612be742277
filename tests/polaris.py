"""A stand-in for Apache Polaris after its published OpenAPI: the management API, OAuth, and EXTERNAL catalogs with notifications.

It refuses what the OpenAPI does not name: other methods, paths and fields; what exists already (409), what is not there (404),
what a principal may not (403), a notification that is not newer than the last (409).
"""

from __future__ import annotations

import base64
import json
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, unquote_plus, urlsplit

import jsonschema

from tests.polaris_schemas import NAMESPACE, NOTIFICATION, REQUESTS, Schema

MANAGEMENT, CATALOG = "/api/management/v1", "/api/catalog"
ADMIN = {"client_id": "root", "client_secret": "s3cr3t"}
KINDS = {
    "catalogs": "catalog",
    "principals": "principal",
    "principal-roles": "principalRole",
    "catalog-roles": "catalogRole",
}
Key = tuple[str, ...]


class Refused(Exception):
    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


@dataclass
class Namespace:
    properties: dict[str, str]
    tables: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Metadata location, and the timestamp of the newest notification."""


@dataclass
class Polaris:
    """`read` reads a metadata file. secrets: by client. held: grants and assignments."""

    read: Callable[[str], dict[str, Any]] = lambda _: {}
    things: dict[Key, dict[str, Any]] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=lambda: {ADMIN["client_id"]: ADMIN["client_secret"]})
    tokens: dict[str, str] = field(default_factory=dict)
    held: set[tuple[str, ...]] = field(default_factory=set)
    namespaces: dict[tuple[str, str], Namespace] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def answer(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        path = urlsplit(url).path
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        try:
            if (method, path) == ("POST", f"{CATALOG}/v1/oauth/tokens"):
                return 200, self._token(headers, body)
            self.requests.append((method, path))
            client = self.tokens.get(headers.get("Authorization", "").removeprefix("Bearer "))
            if client is None:
                raise Refused(401, "NotAuthorizedException", "no valid token")
            given = json.loads(body) if body else None
            if path.startswith(f"{MANAGEMENT}/"):
                if client != ADMIN["client_id"]:
                    raise Refused(403, "ForbiddenException", "not an administrator")
                return self._manage(method, path.removeprefix(MANAGEMENT), given)
            return self._serve(method, path.removeprefix(CATALOG), query, given, client)
        except Refused as refused:
            error = {"message": str(refused), "type": refused.kind, "code": refused.status}
            return refused.status, {"error": error}

    def _token(self, headers: Mapping[str, str], body: bytes) -> Any:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        basic = headers.get("Authorization", "").removeprefix("Basic ")
        id, _, secret = (unquote_plus(each) for each in base64.b64decode(basic).decode().partition(":"))
        if form.get("grant_type") != "client_credentials" or not form.get("scope", "").startswith(
            "PRINCIPAL_ROLE:"
        ):
            raise Refused(400, "OAuthException", "invalid_scope")
        if not secret or self.secrets.get(id) != secret:
            raise Refused(401, "OAuthException", "unauthorized_client")
        token = uuid.uuid4().hex
        self.tokens[token] = id
        return {"access_token": token, "token_type": "bearer", "expires_in": 3600}

    def _manage(self, method: str, path: str, given: Any) -> tuple[int, Any]:
        schema, template = self._operation(method, path)
        _check(given, schema)
        parts = [unquote(part) for part in path.split("/")[1:]]
        for prefix in range(2, len(parts), 2):  # what the path goes through
            self._find(self._key(parts[:prefix]))
        match method:
            case "GET":
                return 200, self._find(self._key(parts))
            case "POST":
                return 201, self._create(parts, given)
            case "DELETE":
                self._delete(self._key(parts))
                return 204, None
        if template.endswith("/grants"):
            self.held.add(("grant", *parts[1:4:2], given["grant"]["privilege"]))
        elif "principalRole" in given:
            self._find(("principal-roles", given["principalRole"]["name"]))
            self.held.add(("has", parts[1], given["principalRole"]["name"]))
        else:
            self._find(("catalogs", parts[3]))
            self._find(("catalogs", parts[3], "catalog-roles", given["catalogRole"]["name"]))
            self.held.add(("may", parts[1], parts[3], given["catalogRole"]["name"]))
        return 201, None

    def _operation(self, method: str, path: str) -> tuple[Schema | None, str]:
        for (known, template), schema in REQUESTS.items():
            expression = re.sub(r"\{\w+\}", "[^/]+", template)
            if known == method and re.fullmatch(expression, path):
                return schema, template
        raise Refused(405, "NotSupported", f"the OpenAPI has no {method} {path} that is known here")

    def _key(self, parts: list[str]) -> Key:
        if parts[0] == "principal-roles" and len(parts) > 2:
            return ("principal-roles", parts[1])
        return tuple(parts)

    def _find(self, key: Key) -> dict[str, Any]:
        if key not in self.things:
            raise Refused(404, "NotFoundException", f"{'/'.join(key)} does not exist")
        return self.things[key]

    def _create(self, parts: list[str], given: dict[str, Any]) -> Any:
        thing = given[KINDS[parts[-1]]]
        key = (*parts, thing["name"])
        if key in self.things:
            raise Refused(409, "AlreadyExistsException", f"{'/'.join(key)} exists")
        self.things[key] = thing | {"entityVersion": 1}
        if parts[-1] != "principals":
            return self.things[key]
        id, secret = uuid.uuid4().hex[:16], uuid.uuid4().hex
        self.things[key]["clientId"] = id
        self.secrets[id] = secret
        return {"principal": self.things[key], "credentials": {"clientId": id, "clientSecret": secret}}

    def _delete(self, key: Key) -> None:
        thing = self._find(key)
        inside = [each for each in self.things if len(each) > len(key) and each[: len(key)] == key]
        if (
            key[0] == "catalogs"
            and len(key) == 2
            and (inside or any(name[0] == key[1] for name in self.namespaces))
        ):
            raise Refused(400, "BadRequestException", f"{key[1]} is not empty")
        del self.things[key]
        self.secrets.pop(thing.get("clientId", ""), None)
        self.held = {each for each in self.held if thing["name"] not in each[1:]}

    def may(self, client: str) -> set[str]:
        """The catalogs whose content a client may manage."""
        (principal,) = (key[1] for key, each in self.things.items() if each.get("clientId") == client)
        roles = {each[2] for each in self.held if each[:2] == ("has", principal)}
        of_catalog = {each[2:] for each in self.held if each[0] == "may" and each[1] in roles}
        return {c for c, role in of_catalog if ("grant", c, role, "CATALOG_MANAGE_CONTENT") in self.held}

    def _serve(
        self, method: str, path: str, query: dict[str, str], given: Any, client: str
    ) -> tuple[int, Any]:
        if (method, path) == ("GET", "/v1/config"):
            self._find(("catalogs", query.get("warehouse", "")))
            return 200, {"defaults": {}, "overrides": {"prefix": query["warehouse"]}}
        match [unquote(part) for part in path.split("/")[1:]]:
            case ["v1", catalog, "namespaces", *rest] if catalog in self.may(client):
                return self._content(method, catalog, rest, given)
        raise Refused(403, "ForbiddenException", f"{client} may not {method} {path}")

    def _content(self, method: str, catalog: str, rest: list[str], given: Any) -> tuple[int, Any]:
        match method, rest:
            case "POST", []:
                _check(given, NAMESPACE)
                key = (catalog, given["namespace"][0])
                if key in self.namespaces:
                    raise Refused(409, "AlreadyExistsException", "exists")
                self.namespaces[key] = Namespace(given.get("properties", {}))
                return 200, given
            case "GET", [name]:
                return 200, {"namespace": [name], "properties": self._namespace(catalog, name).properties}
            case "DELETE", [name]:
                if self._namespace(catalog, name).tables:
                    raise Refused(409, "NamespaceNotEmptyException", "not empty")
                del self.namespaces[catalog, name]
                return 204, None
            case "GET", [name, "tables", table]:
                location = self._table(catalog, name, table)[0]
                return 200, {"metadata-location": location, "metadata": self.read(location)}
            case "POST", [name, "tables", table, "notifications"]:
                _check(given, NOTIFICATION)
                return self._notify(catalog, name, table, given["notification-type"], given["payload"])
        raise Refused(405, "NotSupported", f"{method} {rest}")

    def _notify(
        self, catalog: str, name: str, table: str, kind: str, payload: dict[str, Any]
    ) -> tuple[int, Any]:
        tables = self._namespace(catalog, name).tables
        if payload["table-name"] != table:
            raise Refused(400, "BadRequestException", "another table")
        if kind == "DROP":
            self._table(catalog, name, table)
            del tables[table]
            return 204, None
        allowed = self._find(("catalogs", catalog))["storageConfigInfo"]["allowedLocations"]
        if not payload["metadata-location"].startswith(tuple(allowed)):
            raise Refused(403, "ForbiddenException", "not in an allowed location")
        if table in tables and payload["timestamp"] <= tables[table][1]:
            raise Refused(409, "AlreadyExistsException", "a newer notification has been admitted")
        tables[table] = (payload["metadata-location"], payload["timestamp"])
        return 204, None

    def _namespace(self, catalog: str, name: str) -> Namespace:
        if (catalog, name) not in self.namespaces:
            raise Refused(404, "NoSuchNamespaceException", name)
        return self.namespaces[catalog, name]

    def _table(self, catalog: str, name: str, table: str) -> tuple[str, int]:
        tables = self._namespace(catalog, name).tables
        if table not in tables:
            raise Refused(404, "NoSuchTableException", table)
        return tables[table]


class Serving:
    """The stand-in on a port of the loopback interface, as a context manager."""

    def __init__(self, polaris: Polaris) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(polaris))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _check(given: Any, schema: Schema | None) -> None:
    if schema is None:
        if given is not None:
            raise Refused(400, "BadRequestException", "this has no body")
        return
    try:
        jsonschema.validate(given, schema)
    except jsonschema.ValidationError as error:
        raise Refused(400, "BadRequestException", error.message) from None


def _handler(polaris: Polaris) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = polaris.answer(self.command, self.path, dict(self.headers), body)
            text = b"" if answer is None else json.dumps(answer).encode()
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_DELETE = serve

        def log_message(self, *_: object) -> None:
            pass

    return Handler
