"""A Confluent-compatible schema registry, read over HTTP with the standard library."""

from __future__ import annotations

import json
import re
import ssl
import tempfile
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from calve import http_client
from calve.config import job
from calve.errors import ConfigError, Fatal, Retryable, Suspended
from calve.http_client import Tokens
from calve.schema.wire import CONFLUENT, FIRST_GUID, Schema, Wire
from calve.secrets import HeldSecret, read_secret, value_of

JSON_TYPE = "application/vnd.schemaregistry.v1+json"
NOT_FOUND_CODES = {40401, 40402, 40403}
DEFAULT_CONTEXT = "."


class ConfluentRegistry:
    """A `Registry` with Confluent's REST interface. secret: of basic authentication; tokens: instead. headers: always sent.

    A url that ends with `/contexts/.NAME` is a registry of its own: the subjects and ids of that context.
    """

    wire: Wire = CONFLUENT

    def __init__(
        self,
        url: str,
        *,
        secret: HeldSecret | None = None,
        tokens: Tokens | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = http_client.checked(url, "registry.url")
        self._headers = {"Accept": JSON_TYPE, **(headers or {})}
        self._secret = secret
        self._tokens = tokens
        self._tls = tls
        named = re.search(r"/contexts/:?([^/:]+):?/?$", url)
        self._context = urllib.parse.unquote(named[1]) if named else DEFAULT_CONTEXT
        self._by_id: dict[int, Schema] = {}
        self._by_guid: dict[int, int] = {}
        self._versions: dict[tuple[str, int], int] = {}
        self._registered: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def default_subject(self, topic: str, part: job.PartName = "value") -> str:
        return f"{topic}-{part}"

    def by_id(self, schema_id: int) -> Schema | None:
        if schema_id >= FIRST_GUID:
            return self._of_guid(schema_id)
        if schema_id not in self._by_id:
            found = self._get(f"/schemas/ids/{schema_id}")
            if found is None:
                return None
            self._keep(self._schema(schema_id, found))
        return self._by_id[schema_id]

    def versions(self, subject: str) -> list[Schema]:
        numbers = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions") or []
        return [schema for number in sorted(numbers) if (schema := self._version(subject, number))]

    def subjects(self) -> list[str]:
        return sorted(map(self._unqualified, self._get("/subjects") or []))

    def subjects_of(self, schema_id: int) -> list[str]:
        if schema_id >= FIRST_GUID:
            named = self._of_guid(schema_id)
            return self.subjects_of(named.id) if named else []
        found = self._get(f"/schemas/ids/{schema_id}/versions?deleted=true") or []
        return sorted({self._unqualified(each["subject"]) for each in found})

    def real_name(self, subject: str) -> str:
        try:
            found = self._get(f"/config/{urllib.parse.quote(subject, safe='')}", may_lack=True) or {}
        except Fatal:  # the credentials may read schemas only
            return subject
        return self._unqualified(found.get("alias") or subject)

    def register(self, subject: str, text: str, kind: str) -> int:
        """The id of a schema (`AVRO`, `JSON`), a new version of the subject if needed. Raises Suspended: `schema_refused`."""
        key = subject, text
        if key not in self._registered:
            body = json.dumps({"schema": text, "schemaType": kind}).encode()
            found = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", body)
            self._registered[key] = int(found["id"])
        return self._registered[key]

    def forget(self, subject: str) -> None:
        with self._lock:
            for key in [key for key in self._versions if key[0] == subject]:
                del self._versions[key]

    def _unqualified(self, subject: str) -> str:
        """The name of a subject in this registry's context."""
        return subject.removeprefix(f":{self._context}:")

    def _of_guid(self, guid: int) -> Schema | None:
        """The schema of a GUID, which has one id in each context. Registries without GUIDs know none."""
        if guid not in self._by_guid:
            found = self._get(f"/schemas/guids/{UUID(int=guid)}/ids", may_lack=True) or []
            own = [int(each["id"]) for each in found if each.get("context", DEFAULT_CONTEXT) == self._context]
            schema = self.by_id(own[0]) if own else None
            if schema is None:
                return None
            with self._lock:
                self._by_guid[guid] = schema.id
                self._by_id[schema.id] = replace(schema, guid=guid)
        return self._by_id[self._by_guid[guid]]

    def _version(self, subject: str, number: int) -> Schema | None:
        known = self._versions.get((subject, number))
        if known is not None:
            return self.by_id(known)
        found = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{number}")
        if found is None:
            return None
        schema = self._keep(self._schema(int(found["id"]), found))
        with self._lock:
            self._versions[subject, number] = schema.id
        return schema

    def _keep(self, schema: Schema) -> Schema:
        with self._lock:
            if schema.guid is not None:
                self._by_guid[schema.guid] = schema.id
            return self._by_id.setdefault(schema.id, schema)

    def _schema(self, schema_id: int, found: Any) -> Schema:
        references: dict[str, str] = {}
        self._collect(found.get("references") or (), references, ())
        guid = UUID(found["guid"]).int if found.get("guid") else None
        return Schema(schema_id, found["schema"], found.get("schemaType", "AVRO"), references, guid=guid)

    def _collect(self, wanted: Any, found: dict[str, str], inside: tuple[str, ...]) -> None:
        """Add the texts of references to `found`. A missing one is left out, and so not resolved."""
        for each in wanted:
            name, subject = each["name"], urllib.parse.quote(each["subject"], safe="")
            path = f"/subjects/{subject}/versions/{int(each['version'])}"
            if name in found or path in inside:
                continue
            if (schema := self._get(f"{path}?deleted=true")) is not None:
                self._collect(schema.get("references") or (), found, (*inside, path))
                found[name] = schema["schema"]

    def _get(self, path: str, body: bytes | None = None, *, may_lack: bool = False) -> Any:
        """The registry's answer; None if there is none. A refused token is renewed once, a refused password retried for a while
        after a change. may_lack: registries of earlier versions do not know the path.
        """
        ask = partial(self._ask, path, body, may_lack=may_lack)
        if self._tokens is None:
            headers: dict[str, str] = {}
            if self._secret:
                texts, reference = self._secret.current().texts, self._secret.reference
                user, password = (value_of(texts, each, reference) for each in ("username", "password"))
                headers = http_client.basic(user, password)
            try:
                return ask(headers)
            except Fatal as error:
                if self._secret is None or not self._secret.refused():
                    raise
                raise Retryable(f"{error.message}, which were changed a moment ago") from None
        token = self._tokens.current()
        try:
            return ask(http_client.bearer(token))
        except Fatal:
            self._tokens.refused(token)
            return ask(http_client.bearer(self._tokens.current()))

    def _ask(self, path: str, body: bytes | None, headers: Mapping[str, str], *, may_lack: bool) -> Any:
        given = {**self._headers, **headers} | ({"Content-Type": JSON_TYPE} if body else {})
        server, method = f"the schema registry at {self._url}", "POST" if body else "GET"
        answer = http_client.ask(
            self._url + path, server=server, method=method, headers=given, body=body, tls=self._tls
        )
        match answer.status:
            case 200:
                return answer.json()
            case 404 if may_lack or _error_code(answer) in NOT_FOUND_CODES:
                return None
            case 401 | 403:
                raise Fatal(
                    f"{server} refused the credentials (HTTP {answer.status})", fix="check registry.secret"
                )
            case 409 | 422 if body is not None:
                raise Suspended(
                    "schema_refused",
                    f"{server} refused a schema for {path} (HTTP {answer.status})",
                    fix="it is not compatible with the versions that are there: name another topic, or delete them",
                )
        raise Retryable(f"{server} answered HTTP {answer.status}")


def open_confluent(settings: job.Registry) -> ConfluentRegistry:
    """The configured registry. Raises ConfigError, Retryable: as `read_secret`. Fatal: the url is neither http nor https."""
    tls = _tls(settings) if settings.url.startswith("https") else None
    if settings.secret is None:
        return ConfluentRegistry(settings.url, tls=tls)
    held = HeldSecret(settings.secret)
    secret = held.current().texts
    if settings.oauth is None:
        return ConfluentRegistry(settings.url, secret=held, tls=tls)
    oauth = settings.oauth
    authorities = ssl.create_default_context()
    if settings.ca_file:
        authorities.load_verify_locations(settings.ca_file)
    tokens = Tokens(
        oauth.token_url,
        value_of(secret, "client_id", settings.secret),
        value_of(secret, "client_secret", settings.secret),
        scope=oauth.scope,
        tls=authorities,
    )
    given = {"target-sr-cluster": oauth.cluster, "Confluent-Identity-Pool-Id": oauth.identity_pool}
    headers = {name: value for name, value in given.items() if value}
    return ConfluentRegistry(settings.url, tokens=tokens, headers=headers, tls=tls)


def _tls(settings: job.Registry) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ca_file)
    if settings.client_certificate:
        pair = read_secret(settings.client_certificate)
        with (
            tempfile.TemporaryDirectory() as folder
        ):  # of mode 700; OpenSSL reads certificates from files only
            files = [Path(folder) / each for each in ("certificate", "key")]
            for file in files:
                file.write_text(value_of(pair, file.name, settings.client_certificate))
            try:
                context.load_cert_chain(files[0], files[1])
            except (ssl.SSLError, ValueError):
                raise ConfigError(
                    f"the secret {settings.client_certificate} is no client certificate with its key",
                    fix="write both in PEM, the key without a password",
                ) from None
    return context


def _error_code(answer: http_client.Answer) -> int | None:
    """The registry's own code: a 404 without one comes from a proxy or a wrong url."""
    try:
        code = answer.json().get("error_code")
    except (Retryable, AttributeError):
        return None
    return int(code) if code is not None else None
