"""Grants by Lake Formation, for the roles of one stack, on the databases of a lake that Lake Formation governs.

A grant on all tables of a database holds for later tables, too. Each act can be repeated. Where IAM alone governs, it grants
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from botocore.exceptions import ClientError

from calve.errors import ConfigError
from lambdas.aws import PAGE, code_of, databases_of, governs, pages, tolerating
from lambdas.custom_resource import handler_of
from lambdas.function import from_properties

SERVICE = "lake_formation"
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)

LATE_S, POLL_S = 60.0, 5.0
"""How long IAM may take until Lake Formation knows a new role, and the time between two attempts."""
LATER = ("InvalidInputException", "ConcurrentModificationException")
GONE = ("AccessDeniedException", "EntityNotFoundException", "InvalidInputException")
"""Nothing to revoke: the grant, the database or the role is gone, or these grants were another's."""

Request = dict[str, Any]
Right = tuple[Request, Sequence[str]]
WRITING = (("DESCRIBE", "CREATE_TABLE"), ("DESCRIBE", "ALTER", "SELECT", "INSERT", "DELETE"))
LOOKING = (("DESCRIBE",), ("DESCRIBE",))
REMOVING = (("DESCRIBE", "DROP"), ("DESCRIBE", "DROP"))
"""On a database, and on all its tables. Files need no grant: all roles read and write them by their own rights to S3."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The AWS clients that grants need."""

    formation: Any
    glue: Any
    sts: Any


@dataclass(frozen=True, slots=True)
class Grants:
    """The properties of the custom resource: ARNs of roles, and those of the objects of all tables.

    database: empty where jobs make one for each cluster; then those that exist.
    """

    deployment: str
    stack: str
    database: str
    files: str
    writers: tuple[str, ...]
    lookers: tuple[str, ...]
    removers: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"grants-of-{self.stack}"

    def databases(self, glue: Any) -> list[str]:
        return [self.database] if self.database else databases_of(glue, self.deployment)


def keep(grants: Grants, before: Grants | None, clients: Clients, clock: Any = time) -> int:
    """Grant what the roles need, and take what others had; returns how many grants there are.

    Raises:
        ConfigError: Lake Formation governs the lake, and this function may not grant.
    """
    wanted: list[Request] = []
    names = grants.databases(clients.glue)
    asked: Sequence[str | None] = names or [None]
    if any(governs(clients.formation, clients.glue, each) for each in asked):
        wanted = _requests(grants, names, clients)
        for each in wanted:
            _grant(each, grants.deployment, clients, clock)
    if before:
        revoke(before, clients, but=wanted)
    return len(wanted)


def revoke(grants: Grants, clients: Clients, but: Sequence[Request] = ()) -> None:
    for each in _requests(grants, grants.databases(clients.glue), clients):
        if each not in but:
            with tolerating(*GONE):
                clients.formation.revoke_permissions(**each)


def _requests(grants: Grants, databases: Sequence[str], clients: Clients) -> list[Request]:
    places = _registered(grants.files, clients.formation) if grants.writers else []
    making: list[Right] = [
        ({"DataLocation": {"ResourceArn": each}}, ["DATA_LOCATION_ACCESS"]) for each in places
    ]
    if not grants.database:
        making.append(({"Catalog": {}}, ["CREATE_DATABASE"]))
    none: list[Right] = []
    kinds = (
        (grants.writers, WRITING, making),
        (grants.lookers, LOOKING, none),
        (grants.removers, REMOVING, none),
    )
    found = []
    for roles, (on_database, on_tables), rights in kinds:
        for name in databases:
            tables: Request = {"Table": {"DatabaseName": name, "TableWildcard": {}}}
            rights = [*rights, ({"Database": {"Name": name}}, on_database), (tables, on_tables)]
        for role in roles:
            who = {"DataLakePrincipalIdentifier": role}
            found += [{"Principal": who, "Resource": r, "Permissions": list(p)} for r, p in rights]
    return found


def _registered(files: str, formation: Any) -> list[str]:
    """The locations that Lake Formation manages and that hold the lake's files: a table is made there by a grant alone."""
    found = [each["ResourceArn"] for each in pages(formation.list_resources, "ResourceInfoList")]
    return [each for each in found if f"{files}/".startswith(f"{each.rstrip('/')}/")]


def _grant(request: Request, deployment: str, clients: Clients, clock: Any) -> None:
    """Repeat it until Lake Formation must know a new role."""
    until = clock.monotonic() + LATE_S
    while True:
        try:
            clients.formation.grant_permissions(**request)
        except ClientError as error:
            if code_of(error) == "AccessDeniedException":
                own = str(clients.sts.get_caller_identity()["Arn"]).split("/")[1]
                raise ConfigError(
                    f"Lake Formation governs the tables of {deployment}, and lets the role {own} grant nothing on them",
                    fix=f"make {own} a data lake administrator, or give it these rights to grant, then deploy again: {PAGE}",
                ) from None
            if code_of(error) not in LATER or clock.monotonic() >= until:
                raise
        else:
            return
        clock.sleep(POLL_S)


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    grants = from_properties(Grants, request.resource_properties)
    clients = Clients(*(boto3.client(each) for each in ("lakeformation", "glue", "sts")))
    if request.request_type == "Delete":
        revoke(grants, clients)
        return
    before = request.old_resource_properties
    kept = keep(grants, from_properties(Grants, before) if before else None, clients)
    logger.info("grants.kept", extra={"stack": grants.stack, "grants": kept})


handle = handler_of(
    _act,
    identify=lambda properties: from_properties(Grants, properties).id,
    logger=logger,
    tracer=tracer,
    failed="grants.not_kept",
)
