"""The custom resource that sets up a Polaris catalog, and removes it again. It creates missing objects, each with our mark.

The management API is https://github.com/apache/polaris/blob/main/spec/polaris-management-service.yml; Snowflake Open Catalog has
the same. Objects without our mark belong to others: calve does not use, change or delete them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    def principal(self) -> str:
        return f"calve-{self.deployment}"

    @property
    def role(self) -> str:
        """The name of the principal's role and of the catalog's role."""
        return f"calve-{self.deployment}"


@dataclass(frozen=True, slots=True)
class Polaris:
    """Creates and removes the objects, with an administrator's rights."""

    server: Server
    names: Names
    _mark: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_mark", {OWNER: self.names.deployment})

    def make(self, stored: Mapping[str, str], store: Store) -> None:
        """Create what is missing. `stored`: our credentials. New ones are stored at once, because Polaris shows them only once.

        Raises:
            Fatal: an object of these names is not ours. Retryable: Polaris does not answer.
        """
        names, role = self.names, {"name": self.names.role}
        self._ensure("/catalogs", names.catalog, {"catalog": self._catalog()})
        self._principal(stored, store)
        marked = role | {"properties": dict(self._mark)}
        self._ensure("/principal-roles", names.role, {"principalRole": marked})
        of_catalog = f"/catalogs/{escaped(names.catalog)}/catalog-roles"
        self._ensure(of_catalog, names.role, {"catalogRole": marked})
        # Grants and assignments are idempotent.
        grant = {"grant": {"type": "catalog", "privilege": PRIVILEGE}}
        self.server.ask("PUT", f"{of_catalog}/{escaped(names.role)}/grants", grant)
        to_role = f"/principal-roles/{escaped(names.role)}/catalog-roles/{escaped(names.catalog)}"
        self.server.ask("PUT", to_role, {"catalogRole": role})
        to_principal = f"/principals/{escaped(names.principal)}/principal-roles"
        self.server.ask("PUT", to_principal, {"principalRole": role})

    def remove(self) -> None:
        """Remove what is ours; grants go with their roles. The catalog must be empty.

        Raises:
            Fatal: it is not empty. Retryable: Polaris does not answer.
        """
        names = self.names
        catalog = f"/catalogs/{escaped(names.catalog)}"
        if self._ours(catalog):
            self._remove(f"{catalog}/catalog-roles/{escaped(names.role)}")
        self._remove(f"/principals/{escaped(names.principal)}")
        self._remove(f"/principal-roles/{escaped(names.role)}")
        self._remove(catalog)

    def _catalog(self) -> dict[str, Any]:
        names = self.names
        storage = {"storageType": "S3", "allowedLocations": [names.location]}
        given = {"roleArn": names.role_arn, "externalId": names.external_id}
        return {
            "type": "EXTERNAL",
            "name": names.catalog,
            "properties": {"default-base-location": names.location, **self._mark},
            "storageConfigInfo": storage | {key: value for key, value in given.items() if value},
        }

    def _principal(self, stored: Mapping[str, str], store: Store) -> None:
        """The principal, with stored credentials. One whose credentials were lost is created again."""
        path = f"/principals/{escaped(self.names.principal)}"
        found = self._find(path)
        if found is not None:
            self._require_ours(found, path)
            if stored.get("client_id") == found.get("clientId"):
                return
            self._delete(path)
        body = {
            "principal": {"name": self.names.principal, "properties": dict(self._mark)},
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

    def _ours(self, path: str) -> bool:
        found = self._find(path)
        return found is not None and _mark_of(found) == self.names.deployment

    def _require_ours(self, found: Mapping[str, Any], path: str) -> None:
        if _mark_of(found) != self.names.deployment:
            raise Fatal(
                f"{path} exists, and was not made by {self.names.deployment}",
                fix="remove it, name another publish.iceberg_rest.warehouse, or set it up by hand without `bootstrap`",
            )

    def _remove(self, path: str) -> None:
        if self._ours(path):
            self._delete(path)

    def _delete(self, path: str) -> None:
        try:
            self.server.ask("DELETE", path)
        except NotFound:
            return


def _mark_of(found: Mapping[str, Any]) -> str | None:
    return (found.get("properties") or {}).get(OWNER)


def credentials_of(text: str) -> dict[str, str]:
    """The credentials in a secret; none if it was never written."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


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


def _act(request: CloudFormationCustomResourceEvent, *, time_left_s: float) -> None:
    wanted = Wanted.parse(request.resource_properties)
    if request.request_type == "Delete":
        wanted.open().remove()
        return
    if request.request_type == "Update":
        _require_same(wanted, Wanted.parse(request.old_resource_properties))
    secrets = boto3.client("secretsmanager")
    stored = credentials_of(secrets.get_secret_value(SecretId=wanted.secret)["SecretString"])

    def store(credentials: Mapping[str, str]) -> None:
        secrets.put_secret_value(SecretId=wanted.secret, SecretString=json.dumps(dict(credentials)))

    wanted.open().make(stored, store)


def _require_same(wanted: Wanted, before: Wanted) -> None:
    """Refuse another catalog or location: its tables would have to be moved."""
    if (wanted.names, wanted.catalog.uri) != (before.names, before.catalog.uri):
        raise Fatal(
            "a catalog that was made cannot be changed into another",
            fix="deploy without publish.iceberg_rest, which removes it, and then with the new one",
        )


handle = handler_of(
    _act,
    identify=lambda properties: f"{Wanted.parse(properties).names.deployment}-polaris",
    logger=logger,
    tracer=tracer,
    failed="catalog.not_set_up",
    done="catalog.set_up",
)
