"""The part of Confluent Cloud's API that is about API keys.

https://docs.confluent.io/cloud/current/api.html#tag/API-Keys-(iamv2)
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from calve import http_client
from calve.errors import Fatal, Retryable
from calve.secrets import Redacted

KEYS = "/iam/v2/api-keys"
PAGE_SIZE = 100
TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Key:
    """An API key without its secret, which is told once, to who makes it. `owner`: a service account; `resource`: a cluster."""

    id: str
    name: str
    owner: str
    resource: str
    created: datetime


@dataclass(frozen=True, slots=True)
class NewKey:
    """An API key with its secret."""

    id: str
    secret: str = field(repr=False)


class Cloud:
    """Confluent Cloud with the rights of a Cloud API key.

    All methods raise `Retryable` where it does not answer, and `Fatal` where it refuses. Nothing is asked twice: a key that was
    made although the answer was lost is found by its name.
    """

    def __init__(self, url: str, credentials: Redacted) -> None:
        self._url = url
        self._credentials = http_client.basic(credentials["username"], credentials["password"])

    def key(self, key_id: str) -> Key:
        return _key(self._ask("GET", f"{KEYS}/{urllib.parse.quote(key_id, safe='')}"))

    def keys(self, owner: str, resource: str) -> Iterator[Key]:
        """All keys of one owner for one resource."""
        filters = {"spec.owner": owner, "spec.resource": resource, "page_size": PAGE_SIZE}
        path: str | None = f"{KEYS}?{urllib.parse.urlencode(filters)}"
        while path:
            page = self._ask("GET", path)
            yield from map(_key, page["data"])
            rest = urllib.parse.urlsplit(page["metadata"].get("next") or "")
            path = (
                f"{KEYS}?{rest.query}" if rest.query else None
            )  # never another server: the credentials would go there

    def make(self, name: str, owner: str, resource: str) -> NewKey:
        spec = {"display_name": name, "owner": {"id": owner}, "resource": {"id": resource}}
        made = self._ask("POST", KEYS, {"spec": spec})
        return NewKey(str(made["id"]), str(made["spec"]["secret"]))

    def delete(self, key: Key) -> None:
        """Delete a key, if it is there."""
        self._ask("DELETE", f"{KEYS}/{urllib.parse.quote(key.id, safe='')}", gone=True)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, gone: bool = False) -> Any:
        headers = {**self._credentials, "Accept": "application/json"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        answer = http_client.send(
            self._url + path, method=method, headers=headers, body=data, timeout_s=TIMEOUT_S
        )
        if answer.status < 300:
            return answer.json() if answer.body else None
        if gone and answer.status == 404:
            return None
        what = f"{method} {path.partition('?')[0]} at {self._url}: HTTP {answer.status}"
        if answer.status == 429 or answer.status >= 500:
            raise Retryable(what)
        raise Fatal(what, fix=_fix(answer.status))


def _fix(status: int) -> str:
    match status:
        case 401 | 403:
            return "check the Cloud API key in rotate.admin_secret, and what its owner may do"
        case 402:
            return "delete API keys that nobody uses: the quota is used up"
        case 404:
            return "write an API key of Confluent Cloud that exists into the secret"
    return "check the secret and rotate.admin_secret"


def _key(raw: Any) -> Key:
    spec, created = raw["spec"], raw["metadata"]["created_at"]
    return Key(
        str(raw["id"]),
        str(spec.get("display_name") or ""),
        str(spec["owner"]["id"]),
        str((spec.get("resource") or {}).get("id", "")),
        datetime.fromisoformat(created),
    )
