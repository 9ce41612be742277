"""A Confluent-compatible schema registry, read over HTTP with the standard library.

An id that the registry does not know is data (a reject); a registry that does not answer is a system that is down
(`Retryable`). Schemas never change once they have an id, so ids are cached for ever; absences and subjects are not.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calve import job
from calve.errors import ConfigError, Fatal, Retryable
from calve.secrets import read_secret

TIMEOUT_S = 10
NOT_FOUND_CODES = {40401, 40402, 40403}


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema: its id, its text, and its type (`AVRO`, `PROTOBUF`, `JSON`).

    references: the texts of all schemas that it needs, by the name it uses; each comes after those that it needs itself.
    """

    id: int
    text: str
    type: str = "AVRO"
    references: Mapping[str, str] = field(default_factory=dict, hash=False)


class Registry:
    """Reads schemas; safe to share between threads."""

    def __init__(
        self, url: str, *, credentials: Mapping[str, str] | None = None, ca_file: str | None = None
    ) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise Fatal(
                f'registry url "{url}" is neither http nor https', fix="set registry.url in calve.yaml"
            )
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if credentials:
            pair = f"{credentials['username']}:{credentials['password']}".encode()
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
        self._tls = ssl.create_default_context(cafile=ca_file) if url.startswith("https") else None
        self._by_id: dict[int, Schema] = {}
        self._versions: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema of an id, or None where the registry has none.

        Raises:
            Retryable: the registry did not answer.
            Fatal: it refused the credentials.
        """
        if schema_id not in self._by_id:
            found = self._get(f"/schemas/ids/{schema_id}")
            if found is None:
                return None
            schema = self._schema(schema_id, found)
            with self._lock:
                self._by_id.setdefault(schema_id, schema)
        return self._by_id[schema_id]

    def versions(self, subject: str) -> list[Schema]:
        """Every version of a subject, oldest first; empty where the subject does not exist.

        Raises:
            Retryable, Fatal: as `by_id`.
        """
        numbers = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions") or []
        return [schema for number in sorted(numbers) if (schema := self._version(subject, number))]

    def was_version(self, schema_id: int, subject: str) -> bool:
        """True where the subject has a version with this schema, or had one that was deleted softly.

        Raises:
            Retryable, Fatal: as `by_id`.
        """
        found = self._get(f"/schemas/ids/{schema_id}/versions?deleted=true") or []
        return any(each["subject"] == subject for each in found)

    def subjects(self) -> list[str]:
        """The names of all subjects, in order.

        Raises:
            Retryable, Fatal: as `by_id`.
        """
        return sorted(self._get("/subjects") or [])

    def forget(self, subject: str) -> None:
        """Drop what is cached of a subject: one that was deleted and made again has other ids for the same versions."""
        with self._lock:
            for key in [key for key in self._versions if key[0] == subject]:
                del self._versions[key]

    def _version(self, subject: str, number: int) -> Schema | None:
        known = self._versions.get((subject, number))
        if known is not None:
            return self.by_id(known)
        found = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{number}")
        if found is None:
            return None
        schema = self._schema(int(found["id"]), found)
        with self._lock:
            self._versions[subject, number] = schema.id
            self._by_id.setdefault(schema.id, schema)
        return schema

    def _schema(self, schema_id: int, found: Any) -> Schema:
        references: dict[str, str] = {}
        self._collect(found.get("references") or (), references, ())
        return Schema(schema_id, found["schema"], found.get("schemaType", "AVRO"), references)

    def _collect(self, wanted: Any, found: dict[str, str], inside: tuple[str, ...]) -> None:
        """Put the texts of references into `found`; one that the registry does not have is left out, and so not resolved."""
        for each in wanted:
            name, subject = each["name"], urllib.parse.quote(each["subject"], safe="")
            path = f"/subjects/{subject}/versions/{int(each['version'])}"
            if name in found or path in inside:
                continue
            if (schema := self._get(f"{path}?deleted=true")) is not None:
                self._collect(schema.get("references") or (), found, (*inside, path))
                found[name] = schema["schema"]

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(self._url + path, headers=self._headers)  # noqa: S310 scheme checked above
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404 and _error_code(error) in NOT_FOUND_CODES:
                return None
            if error.code in (401, 403):
                raise Fatal(
                    f"the schema registry at {self._url} refused the credentials (HTTP {error.code})",
                    fix="check registry.secret",
                ) from None
            raise Retryable(f"the schema registry at {self._url} answered HTTP {error.code}") from None
        except (OSError, ValueError) as error:
            raise Retryable(f"the schema registry at {self._url} does not answer: {error}") from None


def open_registry(settings: job.Registry | None) -> Registry:
    """The registry of a configuration, with the credentials that its secret holds.

    Raises:
        ConfigError: there is none. ConfigError, Retryable: as `read_secret`. Fatal: the url is neither http nor https.
    """
    if settings is None:
        raise ConfigError(
            "no schema registry is named", fix="add `registry: {url: https://host}` to calve.yaml"
        )
    credentials = read_secret(settings.secret) if settings.secret else None
    return Registry(settings.url, credentials=credentials, ca_file=settings.ca_file)


def _error_code(error: urllib.error.HTTPError) -> int | None:
    """The registry's own code: a 404 without one is a proxy or a wrong url, not an absent schema."""
    try:
        code = json.load(error).get("error_code")
    except (ValueError, AttributeError):
        return None
    return int(code) if code is not None else None
