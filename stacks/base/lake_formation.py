"""Grants by Lake Formation to the roles of a stack: `lambdas/lake/formation.py`, a function of the lake's stack, makes them."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CustomResource, Duration, Stack
from constructs import Construct, IConstruct

from stacks.base.function import Function, Site
from stacks.base.roles import allow, arn

ASKING = ("lakeformation:GetDataLakeSettings", "lakeformation:ListPermissions")
GRANTING = (
    "lakeformation:ListResources",
    "lakeformation:GrantPermissions",
    "lakeformation:RevokePermissions",
)
NO_RESOURCE = (
    "Lake Formation's actions know no resources; what may be granted, its own grants to this role say"
)
LIMIT = Duration.minutes(10)


def formation_name(deployment: str) -> str:
    return f"{deployment}-lake-formation"


def lake_formation(scope: Construct, site: Site) -> Function | None:
    """The function that grants; None: the tables are not in Glue. `scope`: its own."""
    if site.lake.catalog is not None:
        return None
    looking = ["glue:GetDatabase", *["glue:GetDatabases"] * site.lake.per_cluster]
    return Function(
        scope,
        "Function",
        site,
        code="lake.formation",
        name=formation_name(site.deployment.name),
        timeout=LIMIT,
        statements=[
            allow([*ASKING, *GRANTING], ["*"], because=NO_RESOURCE),
            allow(looking, site.lake.catalog_arns, because="all databases of the lake"),
        ],
    )


def grants(
    scope: Construct,
    site: Site,
    *,
    writers: Sequence[str] = (),
    lookers: Sequence[str] = (),
    removers: Sequence[str] = (),
    before: Sequence[IConstruct] = (),
) -> None:
    """Let roles, by their ARNs, use the catalog where Lake Formation governs it. `scope`: its own. `before`: what needs that.

    Another value of the context `grant` has the function look again, as after an account came to be governed.
    """
    if site.lake.catalog is not None:
        return
    stack = Stack.of(scope)
    resource = CustomResource(
        scope,
        "Resource",
        resource_type="Custom::CalveLakeFormation",
        service_token=arn("lambda", f"function:{formation_name(site.deployment.name)}"),
        service_timeout=LIMIT,
        properties={
            "Deployment": site.deployment.name,
            "Stack": stack.stack_name,
            "Database": "" if site.lake.per_cluster else site.lake.database,
            "Files": f"{site.lake.bucket_arn}/{site.lake.prefix}".rstrip("/"),
            "Writers": ",".join(writers),
            "Lookers": ",".join(lookers),
            "Removers": ",".join(removers),
            "Again": scope.node.try_get_context("grant") or "",
        },
    )
    for each in before:
        each.node.add_dependency(resource)
