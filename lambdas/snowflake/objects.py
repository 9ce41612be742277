"""The custom resource that creates a deployment's objects in Snowflake, applies changes, and removes only its own objects.

Two AWS roles trust Snowflake's IAM user, which only Snowflake knows; then both sides are verified.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent

from calve.config.publishing import Snowflake
from calve.errors import ConfigError, Fatal
from calve.secrets import read_secret, value_of
from lambdas.aws import read_text
from lambdas.custom_resource import handler_of
from lambdas.publish_states import PublishStates, Target, make_pending
from lambdas.snowflake.sql import Lake, Object, grants, mark, name, objects
from lambdas.snowflake.sql_api import (
    KeyPair,
    Session,
    administrator,
    first,
    properties,
    register,
    system_status,
)

logger = Logger(service="snowflake_objects")
tracer = Tracer(service="snowflake_objects")

INFORMATION = "INFORMATION_SCHEMA"
READ_THROUGH = {"EXTERNAL VOLUME", "CATALOG INTEGRATION"}
"""Snowflake does not drop these while a table reads through them."""
HOLDERS = {"SCHEMA", "DATABASE"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The objects that an account should have."""

    deployment: str
    config: Snowflake
    lake: Lake

    @property
    def objects(self) -> tuple[Object, ...]:
        return tuple(objects(self.config, self.deployment, self.lake))


def make(
    session: Session, wanted: Wanted, old: Wanted | None, key: KeyPair, trust: Callable[[], object]
) -> None:
    """Create and grant what is missing, after removing objects of earlier deploys that are no longer needed.

    `trust` is called after everything that reaches the lake exists, and before anything that reads it.

    Raises:
        ConfigError: an object of that name belongs to somebody else.
        Refused, Retryable, Fatal: as `Session.execute`.
    """
    for each in wanted.objects:  # before anything is created, so that a refusal leaves nothing behind
        if each.own and (comment := _comment(session, each)) not in (None, mark(wanted.deployment)):
            raise ConfigError(
                f'Snowflake has a {each.kind.lower()} {each.name} already, with the comment "{comment}"',
                fix="it is not this deployment's: choose another name in publish.snowflake, or drop it",
            )
    if old:
        _follow(session, wanted, old)
    for each in wanted.objects:
        if each.kind == "DATABASE":
            trust()
        session.execute(each.create)
    register(session, wanted.config.service_user, key)
    for grant in grants(wanted.config):
        session.execute(grant)


def remove(session: Session, wanted: Wanted, unwanted: Sequence[Object] | None = None) -> list[str]:
    """Drop tables and objects with the deployment's mark, dependent ones first; returns those that were kept.

    A schema or database with objects of others is kept. Raises: as `Session.execute`.
    """
    dropped = wanted.objects if unwanted is None else unwanted
    linked = wanted.config.linked
    if not linked and {each.kind for each in dropped} & (READ_THROUGH | HOLDERS):
        _drop_tables(session, wanted)
    kept = []
    for each in reversed(dropped):
        if _comment(session, each) != mark(wanted.deployment):
            continue
        within = f"{each.kind} {each.name}"
        inside = session.execute(f"SHOW OBJECTS IN {within}") if each.kind in HOLDERS and not linked else []
        if any(row["schema_name"] != INFORMATION for row in inside):
            kept.append(within)
        else:
            session.execute(each.drop)
    return kept


def _follow(session: Session, wanted: Wanted, old: Wanted) -> None:
    """Drop objects whose fixed options changed, and set the variable ones."""
    now = {(each.kind, each.parts): each for each in wanted.objects}
    gone = []
    for each in old.objects:
        new = now.get((each.kind, each.parts))
        if new is None or new.fixed != each.fixed:
            gone.append(each)
        elif new.variable != each.variable and _comment(session, new) == mark(wanted.deployment):
            session.execute(new.alter)
    if any(each.kind in READ_THROUGH for each in gone) and old.config.linked:
        gone += [each for each in old.objects if each.kind == "DATABASE" and each not in gone]
    remove(session, old, gone)


def _drop_tables(session: Session, wanted: Wanted) -> None:
    """Drop the tables that read through the deployment's integration: it created them."""
    schema = Object("SCHEMA", (wanted.config.database, wanted.config.schema), "")
    if _comment(session, schema) is None:
        return
    for row in session.execute(f"SHOW ICEBERG TABLES IN SCHEMA {schema.name}"):
        if row["catalog_name"] == wanted.config.integration:
            session.execute(f"DROP ICEBERG TABLE IF EXISTS {name(*schema.parts, str(row['name']))}")


def _comment(session: Session, each: Object) -> str | None:
    """The comment of an object; None if there is no such object."""
    if each.kind == "SCHEMA" and _comment(session, Object("DATABASE", each.parts[:1], "")) is None:
        return None
    rows = session.execute(each.show)
    return next((row.get("comment") or "" for row in rows if row["name"] == each.parts[-1]), None)


VERIFY_S = 90.0
"""How long a new trust policy may take to work everywhere; AWS speaks of seconds."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 8.0


def establish(session: Session, config: Snowflake, lake: Lake, iam: Any) -> None:
    """Let Snowflake's IAM user assume the roles, unless they trust it already. Raises: as `Session.execute`."""
    if config.iam_user_arn is not None:
        return
    trusted = {lake.volume_role: _user_of_volume(session, config)}
    if lake.catalog_role:
        said = properties(session, "CATALOG INTEGRATION", config.integration)
        kind = "GLUE" if config.catalog == "glue" else "API"
        trusted[lake.catalog_role] = (said[f"{kind}_AWS_IAM_USER_ARN"], said[f"{kind}_AWS_EXTERNAL_ID"])
    for role, (user_arn, external_id) in trusted.items():
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": user_arn},
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": {"sts:ExternalId": external_id}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.update_assume_role_policy(RoleName=role.rpartition("/")[2], PolicyDocument=policy)


def _user_of_volume(session: Session, config: Snowflake) -> tuple[str, str]:
    """Snowflake's IAM user, and the external id that it sends."""
    location = json.loads(properties(session, "EXTERNAL VOLUME", config.volume)["STORAGE_LOCATION_1"])
    return location["STORAGE_AWS_IAM_USER_ARN"], location["STORAGE_AWS_EXTERNAL_ID"]


def verify(
    session: Session,
    config: Snowflake,
    *,
    wait_s: float = VERIFY_S,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Let Snowflake test both; repeated for a while. Raises Fatal: one of them does not work; with Snowflake's message."""
    deadline = time.monotonic() + wait_s
    for function, subject in (
        ("SYSTEM$VERIFY_EXTERNAL_VOLUME", config.volume),
        ("SYSTEM$VERIFY_CATALOG_INTEGRATION", config.integration),
    ):
        pause_s = FIRST_PAUSE_S
        while str((said := system_status(session, function, subject)).get("success")).lower() != "true":
            if time.monotonic() > deadline:
                raise Fatal(f"Snowflake cannot use {subject}: {json.dumps(said)}")
            sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _id(properties: Mapping[str, Any]) -> str:
    """Of the account alone: other settings of the same account are changed in place."""
    return f"{properties['Deployment']}@{Snowflake.from_json(properties['Settings']).account}"


def _known(properties: Mapping[str, Any]) -> str:
    """The resource's id, after its administrator has logged in: if nobody can, there is nothing that a delete must drop."""
    administrator(Snowflake.from_json(properties["Settings"])).value("SELECT CURRENT_USER()")
    return _id(properties)


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> dict[str, str]:
    wanted = read(request.resource_properties, request.stack_id)
    session = administrator(wanted.config)
    states = PublishStates(os.environ["STATES_TABLE"], boto3.client("dynamodb"))
    if request.request_type == "Delete":
        kept = remove(session, wanted)
        for each in list(states.all(Target.SNOWFLAKE)):
            states.remove(Target.SNOWFLAKE, each.table)
        logger.info("snowflake.removed", extra={"kept": kept})
        return {}
    old = None
    if request.request_type == "Update":
        before = request.old_resource_properties
        if _id(before) == _id(request.resource_properties):
            old = read(before, request.stack_id)
    key = first(os.environ["KEY_SECRET"], boto3.client("secretsmanager"))

    def trust() -> None:
        establish(session, wanted.config, wanted.lake, boto3.client("iam"))
        verify(session, wanted.config, wait_s=min(VERIFY_S, time_left_s))

    make(session, wanted, old, key, trust)
    tables = json.loads(read_text(boto3.client("s3"), request.resource_properties["TablesFile"]))
    make_pending(states, Target.SNOWFLAKE, tables)
    logger.info("snowflake.made")
    return {"IamUserArn": _user_of_volume(session, wanted.config)[0]}


def read(properties: Mapping[str, Any], stack_id: str) -> Wanted:
    """The objects that a request's properties describe. Raises as `read_secret` if the catalog is Open Catalog."""
    config = Snowflake.from_json(properties["Settings"])
    region, account = stack_id.split(":")[3:5]
    secret = {}
    if config.open_catalog:
        reference = config.open_catalog.secret
        held = read_secret(reference)
        secret = {key: value_of(held, key, reference) for key in ("client_id", "client_secret")}
    lake = Lake(
        location=properties["Location"],
        region=region,
        account=account,
        database=properties["Database"],
        volume_role=properties["VolumeRole"],
        catalog_role=properties["CatalogRole"],
        external_id=properties["ExternalId"],
        **secret,
    )
    return Wanted(properties["Deployment"], config, lake)


handle = handler_of(_act, identify=_known, logger=logger, tracer=tracer, failed="snowflake.failed")
