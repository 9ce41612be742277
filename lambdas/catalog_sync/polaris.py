"""The custom resource that sets up a Polaris catalog, and removes it again. It creates missing objects, each with our mark.

The management API is https://github.com/apache/polaris/blob/main/spec/polaris-management-service.yml; Snowflake Open Catalog has
the same. Objects without our mark belong to others: calve does not use, change or delete them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent

from calve.config.publishing import IcebergRest
from calve.errors import Fatal
from lambdas.catalog_sync.catalog import Conflict, NotFound, Server, escaped, tokens_of
from lambdas.custom_resource import handler_of

SERVICE = "catalog_bootstrap"
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)

OWNER = "calve.deployment"
PRIVILEGE = "CATALOG_MANAGE_CONTENT"

Store = Callable[[Mapping[str, str]], None]


@dataclass(frozen=True, slots=True)
class Names:
    """The objects of a deployment. location: of its tables. role_arn: the role with which Polaris reads them."""

    deployment: str
    catalog: str
    location: str
    role_arn: str | None = None
    external_id: str | None = None

    @property
    def own(self) -> str:
        """The name of the principal, of its role, and of the catalog's role."""
        return f"calve-{self.deployment}"

    @property
    def catalog_path(self) -> str:
        return f"/catalogs/{escaped(self.catalog)}"


@dataclass(frozen=True, slots=True)
class Polaris:
    """Creates and removes the objects, with an administrator's rights."""

    server: Server
    names: Names

    def make(self, stored: Mapping[str, str], store: Store) -> None:
        """Create what is missing. `stored`: our credentials. New ones are stored at once, because Polaris shows them only once.

        Raises:
            Fatal: an object of these names is not ours. Retryable: Polaris does not answer.
        """
        names, own, of_catalog = self.names, escaped(self.names.own), self.names.catalog_path
        mark, role = {OWNER: names.deployment}, {"name": names.own}
        given = {"roleArn": names.role_arn, "externalId": names.external_id}
        storage = {"storageType": "S3", "allowedLocations": [names.location]}
        catalog = {
            "type": "EXTERNAL",
            "name": names.catalog,
            "properties": {"default-base-location": names.location, **mark},
            "storageConfigInfo": storage | {key: value for key, value in given.items() if value},
        }
        self._ensure("/catalogs", names.catalog, {"catalog": catalog})
        self._principal(stored, store)
        marked = role | {"properties": mark}
        self._ensure("/principal-roles", names.own, {"principalRole": marked})
        self._ensure(f"{of_catalog}/catalog-roles", names.own, {"catalogRole": marked})
        # Grants and assignments are idempotent.
        grant = {"grant": {"type": "catalog", "privilege": PRIVILEGE}}
        self.server.ask("PUT", f"{of_catalog}/catalog-roles/{own}/grants", grant)
        to_role = f"/principal-roles/{own}/catalog-roles/{escaped(names.catalog)}"
        self.server.ask("PUT", to_role, {"catalogRole": role})
        self.server.ask("PUT", f"/principals/{own}/principal-roles", {"principalRole": role})

    def remove(self) -> None:
        """Remove what is ours; grants go with their roles. The catalog must be empty.

        Raises:
            Fatal: it is not empty. Retryable: Polaris does not answer.
        """
        own, of_catalog = escaped(self.names.own), self.names.catalog_path
        if self._ours(self._find(of_catalog)):
            self._remove(f"{of_catalog}/catalog-roles/{own}")
        for path in (f"/principals/{own}", f"/principal-roles/{own}", of_catalog):
            self._remove(path)

    def _principal(self, stored: Mapping[str, str], store: Store) -> None:
        """The principal, with stored credentials. One whose credentials were lost is created again."""
        path = f"/principals/{escaped(self.names.own)}"
        found = self._find(path)
        if found is not None:
            self._require_ours(found, path)
            if stored.get("client_id") == found.get("clientId"):
                return
            self._remove(path)
        body = {
            "principal": {"name": self.names.own, "properties": {OWNER: self.names.deployment}},
            "credentialRotationRequired": False,
        }
        credentials = self.server.ask("POST", "/principals", body)["credentials"]
        store({"client_id": credentials["clientId"], "client_secret": credentials["clientSecret"]})

    def _ensure(self, collection: str, name: str, body: Mapping[str, Any]) -> None:
        path = f"{collection}/{escaped(name)}"
        found = self._find(path)
        if found is None:
            try:
                self.server.ask("POST", collection, body)
            except Conflict:
                found = self._find(path)
        if found is not None:
            self._require_ours(found, path)

    def _find(self, path: str) -> dict[str, Any] | None:
        try:
            return self.server.ask("GET", path)
        except NotFound:
            return None

    def _ours(self, found: Mapping[str, Any] | None) -> bool:
        return found is not None and (found.get("properties") or {}).get(OWNER) == self.names.deployment

    def _require_ours(self, found: Mapping[str, Any], path: str) -> None:
        if not self._ours(found):
            raise Fatal(
                f"{path} exists, and was not made by {self.names.deployment}",
                fix="remove it, name another publish.iceberg_rest.warehouse, or set it up by hand without `bootstrap`",
            )

    def _remove(self, path: str) -> None:
        if self._ours(self._find(path)):
            with suppress(NotFound):
                self.server.ask("DELETE", path)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The properties of the custom resource. secret: of the created credentials."""

    catalog: IcebergRest
    names: Names
    secret: str

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        names = Names(**json.loads(properties["Names"]))
        return cls(IcebergRest.from_json(properties["Catalog"]), names, properties["Secret"])

    def open(self) -> Polaris:
        bootstrap = self.catalog.bootstrap
        if bootstrap is None:
            raise Fatal("the catalog has no administrator", fix="set publish.iceberg_rest.bootstrap")
        tokens = tokens_of(self.catalog, bootstrap.secret, bootstrap.scope)
        return Polaris(Server(bootstrap.management_uri, tokens), self.names)


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    wanted = Wanted.parse(request.resource_properties)
    if request.request_type == "Delete":
        wanted.open().remove()
        return
    if request.request_type == "Update":
        before = Wanted.parse(request.old_resource_properties)
        if (wanted.names, wanted.catalog.uri) != (before.names, before.catalog.uri):
            raise Fatal(  # the tables would have to be moved
                "a catalog that was made cannot be changed into another",
                fix="deploy without publish.iceberg_rest, which removes it, and then with the new one",
            )
    secrets = boto3.client("secretsmanager")
    stored: Any = {}
    with suppress(ValueError):  # the text of a secret that was never written is none of ours
        stored = json.loads(secrets.get_secret_value(SecretId=wanted.secret)["SecretString"])

    def store(credentials: Mapping[str, str]) -> None:
        secrets.put_secret_value(SecretId=wanted.secret, SecretString=json.dumps(dict(credentials)))

    wanted.open().make(stored if isinstance(stored, dict) else {}, store)


handle = handler_of(
    _act,
    identify=lambda properties: f"{Wanted.parse(properties).names.deployment}-polaris",
    logger=logger,
    tracer=tracer,
    failed="catalog.not_set_up",
    done="catalog.set_up",
)
