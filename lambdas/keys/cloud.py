"""Secrets Manager's rotation of one API key of Confluent Cloud -> `rotate`.

A new key has the same owner and resource; the newest keys stay valid. `Cloud` is the API-key part of Confluent Cloud's API:
https://docs.confluent.io/cloud/current/api.html#tag/API-Keys-(iamv2)
"""

from __future__ import annotations

import json
import os
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer

from calve import http_client
from calve.config.job import Kafka
from calve.errors import Fatal, Retryable
from calve.registry.confluent import ConfluentRegistry
from calve.secrets import HeldSecret, Redacted, read_secret
from lambdas.kafka_client import Broker
from lambdas.rotation import Rotation, Subject, attempt, credentials_of, handler_of

logger = Logger(service="cloud_keys")
tracer = Tracer(service="cloud_keys")

KEYS = "/iam/v2/api-keys"
PAGE_SIZE = 100
TIMEOUT_S = 20
NOT_ALLOWED = "check the Cloud API key in rotate.admin_secret, and what its owner may do"
FIXES = {
    401: NOT_ALLOWED,
    402: "delete API keys that nobody uses: the quota is used up",
    403: NOT_ALLOWED,
    404: "write an API key of Confluent Cloud that exists into the secret",
}


@dataclass(frozen=True, slots=True)
class Key:
    """An API key without its secret, which Confluent shows only once. `owner`: a service account. `resource`: a cluster."""

    id: str
    name: str
    owner: str
    resource: str
    created: datetime


class Cloud:
    """Confluent Cloud, with the rights of a Cloud API key.

    All methods raise `Retryable` if it does not answer, and `Fatal` if it refuses. No request is repeated: a key that was created
    although the answer was lost is found by its name.
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
            # Never another server: it would get the credentials.
            path = f"{KEYS}?{rest.query}" if rest.query else None

    def make(self, name: str, owner: str, resource: str) -> Redacted:
        spec = {"display_name": name, "owner": {"id": owner}, "resource": {"id": resource}}
        made = self._ask("POST", KEYS, {"spec": spec})
        return Redacted({"username": str(made["id"]), "password": str(made["spec"]["secret"])})

    def delete(self, key: Key) -> None:
        """Delete a key, if it exists."""
        self._ask("DELETE", f"{KEYS}/{urllib.parse.quote(key.id, safe='')}", gone=True)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, gone: bool = False) -> Any:
        answer = http_client.send_json(
            self._url + path, body, method=method, headers=self._credentials, timeout_s=TIMEOUT_S
        )
        if answer.status < 300:
            return answer.json() if answer.body else None
        if gone and answer.status == 404:
            return None
        what = f"{method} {path.partition('?')[0]} at {self._url}: HTTP {answer.status}"
        if answer.status == 429 or answer.status >= 500:
            raise Retryable(what)
        raise Fatal(what, fix=FIXES.get(answer.status, "check the secret and rotate.admin_secret"))


def _key(raw: Any) -> Key:
    spec, created = raw["spec"], raw["metadata"]["created_at"]
    return Key(
        str(raw["id"]),
        str(spec.get("display_name") or ""),
        str(spec["owner"]["id"]),
        str((spec.get("resource") or {}).get("id", "")),
        datetime.fromisoformat(created),
    )


ATTEMPTS = 40
PAUSE_S = 5.0
"""A new key takes a minute or two until all servers of Confluent Cloud know it."""


@dataclass(frozen=True, slots=True)
class CloudKeys(Subject):
    """Its keys have names that begin with `calve` and the secret's name; it deletes no other keys.

    use: raises `CalveError` if a key does not work.
    """

    secret: str
    cloud: Callable[[], Cloud]
    use: Callable[[Redacted], object]
    retain: int
    sleep: Callable[[float], None] = time.sleep

    def create(self, version: str, current: str | None) -> str:
        """Keys newer than the one in use were never used: their rotation stopped, or this step crashed before it stored them."""
        texts, cloud = credentials_of(current), self.cloud()
        in_use = cloud.key(texts["username"])
        for each in self._own(cloud, in_use):
            if each.id != in_use.id and each.created >= in_use.created:
                cloud.delete(each)
        made = cloud.make(f"{self._prefix}{version}", in_use.owner, in_use.resource)
        return json.dumps({**texts, **made})

    def test(self, pending: str, current: str | None) -> None:
        key = credentials_of(pending)
        attempt(lambda: self.use(key), ATTEMPTS, PAUSE_S, self.sleep)

    def finished(self, current: str) -> None:
        """Delete the oldest keys. The previous key is the newest but one."""
        cloud = self.cloud()
        in_use = cloud.key(credentials_of(current)["username"])
        newest = sorted(self._own(cloud, in_use), key=lambda key: key.created, reverse=True)
        for each in newest[self.retain :]:
            if each.id != in_use.id:
                cloud.delete(each)

    def _own(self, cloud: Cloud, in_use: Key) -> list[Key]:
        found = cloud.keys(in_use.owner, in_use.resource)
        return [each for each in found if each.name.startswith(self._prefix)]

    @property
    def _prefix(self) -> str:
        return f"calve {self.secret} "


@cache
def rotation() -> Rotation:
    """Made once per process. `KAFKA`: the clients' settings as JSON. `REGISTRY`: the registry's URL."""
    secret, admin = os.environ["SECRET"], os.environ["ADMIN_SECRET"]
    subject = CloudKeys(
        secret,
        lambda: Cloud(os.environ["CLOUD"], read_secret(f"aws:{admin}")),
        _use,
        int(os.environ["KEYS_TO_RETAIN"]),
    )
    return Rotation(secret, subject, boto3.client("secretsmanager"))


def _use(key: Redacted) -> None:
    if registry := os.environ.get("REGISTRY"):
        ConfluentRegistry(registry, secret=HeldSecret(os.environ["SECRET"], read=lambda _: key)).subjects()
    else:
        kafka = Kafka(**json.loads(os.environ["KAFKA"]))
        Broker(kafka, key, os.environ.get("KAFKA_AUTHORITIES")).topics()


rotate = handler_of(rotation, logger, tracer)
