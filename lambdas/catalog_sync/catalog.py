"""The Iceberg REST catalog to keep equal: JSON over HTTP with OAuth client credentials, one error class for each refusal.

https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml; notifications are Polaris' own:
https://github.com/apache/polaris/blob/main/spec/polaris-catalog-apis/notifications-api.yaml
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode

from calve import http_client
from calve.config.publishing import IcebergRest
from calve.errors import CalveError, Fatal, Retryable
from calve.http_client import Tokens
from calve.names import TableName
from calve.secrets import read_secret, value_of
from lambdas.followers import Head, of_metadata

SETTINGS = "publish.iceberg_rest.secret, token_url and scope"
TIMEOUT_S = 15
TOKEN_REFUSED = (401, 419)
DONE_NOTHING = (429, 503)
"""The server did nothing; after any other 5xx it may have applied the request."""
SAID = 300


class NotFound(CalveError):
    """There is no such table or namespace."""


class Conflict(CalveError):
    """It exists already, or a newer version does."""


class NotSupported(Fatal):
    """The server has no such operation."""


class Unanswered(Retryable):
    """A change was sent, and its outcome is unknown."""


class Server:
    """One server; thread-safe."""

    def __init__(self, uri: str, tokens: Tokens | None = None) -> None:
        self._uri = http_client.checked(uri, "publish.iceberg_rest.uri")
        self._tokens = tokens

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The server's answer; empty if it has no body. A refused token is renewed once.

        Raises:
            NotFound, Conflict, NotSupported: see there. Fatal: refused. Retryable: no answer.
            Unanswered: no answer to a change.
        """
        url = f"{self._uri}{path}" + (f"?{urlencode(query)}" if query else "")
        for _ in range(2):
            token = self._tokens.current() if self._tokens else None
            headers = http_client.bearer(token) if token else {}
            try:
                answer = http_client.send_json(url, body, method=method, headers=headers, timeout_s=TIMEOUT_S)
                if answer.status < 300:
                    return answer.json() if answer.body else {}
            except http_client.NoAnswer as error:
                raise (Retryable if method == "GET" else Unanswered)(error.message) from None
            if not (self._tokens and token and answer.status in TOKEN_REFUSED):
                raise _refusal(f"{method} {self._uri}{path}", method, answer)
            self._tokens.refused(token)
        raise Fatal(f"{self._uri} refused the token (HTTP {answer.status})")


def tokens_of(settings: IcebergRest, secret: str, scope: str | None) -> Tokens:
    """OAuth tokens for the client in a secret. Raises ConfigError, Retryable: as `read_secret`."""
    client = read_secret(secret)
    return Tokens(
        settings.token_url or f"{settings.uri}/v1/oauth/tokens",
        value_of(client, "client_id", secret),
        value_of(client, "client_secret", secret),
        scope=scope,
        settings=SETTINGS,
    )


def escaped(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def _refusal(request: str, method: str, answer: http_client.Answer) -> CalveError:
    """`request` names it in the message. Servers of Iceberg and Polaris say why in the field `error`."""
    said, status = "", answer.status
    with suppress(ValueError, TypeError, KeyError):
        error = json.loads(answer.body)["error"]
        said = f"{error['type']}: {error['message']}"[:SAID]
    message = f"{request}: HTTP {status} {said}".rstrip()
    match status:
        case 404:
            return NotFound(message)
        case 409:
            return Conflict(message)
        case 405 | 406 | 501:
            return NotSupported(message)
        case _ if status in DONE_NOTHING or (status >= 500 and method == "GET"):
            return Retryable(message)
        case _ if status >= 500:
            return Unanswered(message)
    return Fatal(message)


class Catalog:
    """One catalog of a server; thread-safe. `notified`: it is written by notifications, as Polaris' EXTERNAL catalogs are."""

    def __init__(self, server: Server, warehouse: str | None = None, *, notified: bool = False) -> None:
        self.server = server
        self._warehouse = warehouse
        self._notified = notified

    @cached_property
    def root(self) -> str:
        """The prefix of the catalog's paths, from the server."""
        query = {"warehouse": self._warehouse} if self._warehouse else None
        config = self.server.ask("GET", "/v1/config", query=query)
        prefix = (config.get("defaults") or {}) | (config.get("overrides") or {})
        # A prefix may have several segments, and is already quoted.
        return f"/v1/{prefix['prefix']}" if prefix.get("prefix") else "/v1"

    def find(self, namespace: str, table: str) -> Head | None:
        """The table; None if there is no such table or namespace."""
        try:
            # Only the snapshots of branches and tags: there may be thousands of others.
            answer = self.server.ask("GET", self._path(namespace, table), query={"snapshots": "refs"})
        except NotFound:
            return None
        return of_metadata(TableName(namespace, table), answer["metadata-location"], answer["metadata"])

    def make_namespace(self, namespace: str, properties: dict[str, str]) -> None:
        """Create the namespace, unless it exists.

        Raises:
            Retryable: it does not exist yet. If it is created later, that is harmless.
        """
        body = {"namespace": [namespace], "properties": properties}
        try:
            self.server.ask("POST", f"{self.root}/namespaces", body)
        except Conflict:
            return
        except Unanswered as error:
            # Iceberg's own server answers one of two concurrent requests with HTTP 500.
            if self.namespace(namespace) is None:
                raise Retryable(error.message) from None

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """The properties of a namespace; None if there is none."""
        try:
            answer = self.server.ask("GET", f"{self.root}/namespaces/{escaped(namespace)}")
        except NotFound:
            return None
        return answer.get("properties") or {}

    def drop_namespace(self, namespace: str) -> None:
        """Drop a namespace, unless it has tables or is gone already."""
        with suppress(NotFound, Conflict):
            self.server.ask("DELETE", f"{self.root}/namespaces/{escaped(namespace)}")

    def _path(self, namespace: str, table: str) -> str:
        return f"{self.root}/namespaces/{escaped(namespace)}/tables/{escaped(table)}"

    def register(self, namespace: str, head: Head, now_ms: int) -> None:
        """Create a table from metadata that the job has written.

        Raises:
            Conflict: it exists. NotFound: there is no such namespace.
        """
        if self._notified:
            self._notify("CREATE", namespace, head, now_ms)
        else:
            self._register(namespace, head)

    def move(self, namespace: str, head: Head, now_ms: int) -> None:
        """Point a table at other metadata, atomically. Polaris refuses a notification that is older than the last."""
        if self._notified:
            self._notify("UPDATE", namespace, head, now_ms)
            return
        try:
            self._register(namespace, head, overwrite=True)
        except (Conflict, NotSupported) as error:
            raise NotSupported(
                f"this catalog cannot register a table again over an existing one: {error.message}",
                fix="set publish.iceberg_rest.update: notifications (Polaris, Snowflake Open Catalog), or use a newer server",
            ) from None

    def drop(self, namespace: str, there: Head, now_ms: int) -> None:
        """Drop a table, if it exists; its files belong to the lake."""
        with suppress(NotFound):
            if self._notified:
                self._notify("DROP", namespace, there, now_ms)
            else:
                path = self._path(namespace, there.name.table)
                self.server.ask("DELETE", path, query={"purgeRequested": "false"})

    def _register(self, namespace: str, head: Head, **options: bool) -> None:
        body = {"name": head.name.table, "metadata-location": head.metadata_location, **options}
        self.server.ask("POST", f"{self.root}/namespaces/{escaped(namespace)}/register", body)

    def _notify(self, kind: str, namespace: str, about: Head, now_ms: int) -> None:
        payload = {
            "table-name": about.name.table,
            "timestamp": now_ms,
            "table-uuid": about.uuid,
            "metadata-location": about.metadata_location,
        }
        body = {"notification-type": kind, "payload": payload}
        self.server.ask("POST", f"{self._path(namespace, about.name.table)}/notifications", body)
