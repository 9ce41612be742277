"""The custom resource that sets up a Polaris catalog, and removes it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.config.publishing import IcebergRest
from calve.errors import Fatal
from lambdas.catalog_sync.catalog import Server
from lambdas.catalog_sync.deployment import tokens_of
from lambdas.catalog_sync.polaris import Names, Polaris, credentials_of
from lambdas.custom_resource import serve

SERVICE = "catalog_bootstrap"
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)


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


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
def handle(event: dict[str, Any], context: LambdaContext) -> None:
    """Create what is missing, or remove what is ours."""
    fields = {"request": event["RequestType"]}
    if reason := serve(event, context, _act, identify=_identify):
        logger.error("catalog.not_set_up", extra=fields | {"reason": reason})
    else:
        logger.info("catalog.set_up", extra=fields)


def _identify(properties: Mapping[str, Any]) -> str:
    return f"{Wanted.parse(properties).names.deployment}-polaris"


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
