"""Tables in Snowflake, in an Iceberg REST catalog and as Delta, and their lineage. All of it can be made again from the lake."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aws_cdk import CfnOutput, CustomResource, Duration, Stack, aws_dynamodb, aws_secretsmanager
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.publishing import CatalogBootstrap, Delta, IcebergRest, OpenLineage, Publish
from stacks.base.function import Function, Site, custom_resource, invoke
from stacks.base.lake_formation import grants
from stacks.base.resources import (
    WRITING_STATES,
    CommitFeed,
    generated_secret,
    reading,
    table_of_states,
    text_file,
)
from stacks.base.roles import Statement, acknowledge, allow, secret_arn
from stacks.publishing.snowflake import SnowflakePublisher

FEED = Duration.minutes(1)
RECONCILE = Duration.minutes(5)
DEPLOY = Duration.minutes(15)
ALL_ROLES = "PRINCIPAL_ROLE:ALL"


@dataclass(frozen=True, slots=True)
class Followers:
    """The functions that follow commits, and that look at every table."""

    feed: CommitFeed
    reconcile: Function


@dataclass(frozen=True, slots=True)
class Following:
    """What makes tables equal at one target.

    code: the module of `lambdas/`, which has `handle`, `feed` and `reconcile`. kind, id: of the custom resource.
    properties: of its own beside the published tables. after: what must be there before it. says: of the look at all tables.
    """

    code: str
    kind: str
    id: str
    says: str
    environment: Mapping[str, str]
    properties: Mapping[str, str]
    statements: Sequence[Statement]
    memory_mb: int = 256
    after: CustomResource | None = None


def followers(
    scope: Construct, site: Site, publish: Publish, states: aws_dynamodb.Table, following: Following
) -> Followers:
    """Three functions of one code. `scope`: their own.

    The triggers depend on the custom resource: a delete removes them first, so nothing is published while tables are dropped.
    """
    published = _published(site.deployment, publish)
    file = text_file(scope, "Published", json.dumps(published))
    finding = ["glue:GetTable", "glue:GetTables", "glue:GetDatabases"]

    def function(id: str, handler: str, timeout: Duration) -> Function:
        return Function(
            scope,
            id,
            site,
            code=following.code,
            handler=handler,
            timeout=timeout,
            memory_mb=following.memory_mb,
            environment={
                **following.environment,
                "PUBLISHED_FILE": file.s3_object_url,
                "STATES_TABLE": states.table_name,
            },
            statements=[
                allow(finding, site.lake.catalog_arns, because="all tables of the lake"),
                allow(WRITING_STATES, [states.table_arn]),
                reading(file),
                *following.statements,
            ],
        )

    properties = {
        **following.properties,
        "Published": json.dumps(published | {"tables": [], "patterns": []}),
        "PublishedFile": file.s3_object_url,
        "StatesTable": states.table_name,
    }
    deploy = function("Deploy", "handle", DEPLOY)
    resource = custom_resource(scope, following.id, following.kind, deploy, properties, DEPLOY)
    if following.after:
        resource.node.add_dependency(following.after)
    follow = function("Follow", "feed", FEED)
    feed = CommitFeed(scope, "Feed", site, follow, FEED)
    feed.node.add_dependency(resource)
    reconcile = function("Reconcile", "reconcile", RECONCILE)
    lookers = [each.role.role_arn for each in (deploy, follow, reconcile)]
    grants(Construct(scope, "Grants"), site, lookers=lookers, before=[resource])
    rule = invoke(scope, "Every", reconcile, description=following.says, schedule="rate(5 minutes)")
    rule.node.add_dependency(resource)
    return Followers(feed, reconcile)


def catalog_sync(
    scope: Construct, site: Site, publish: Publish, catalog: IcebergRest, states: aws_dynamodb.Table
) -> Followers:
    """What keeps an Iceberg REST catalog equal to Glue. `scope`: its own."""
    made, secret = None, secret_arn(catalog.secret) if catalog.secret else None
    if catalog.bootstrap:
        within = Construct(scope, "Bootstrap")
        credentials, made = catalog_bootstrap(within, site, catalog, catalog.bootstrap)
        secret = credentials.ref
        catalog = replace(catalog, secret=f"aws:{secret}", scope=catalog.scope or ALL_ROLES)
    following = Following(
        code="catalog_sync",
        kind="CatalogSync",
        id="Catalog",
        says="Every difference is found and repaired",
        environment={"CATALOG": catalog.to_json()},
        properties={"Catalog": catalog.to_json()},
        statements=[
            allow(["s3:GetObject"], site.lake.metadata(), because="the metadata files of all tables"),
            *site.lake.key("kms:Decrypt", through_s3=True),
            *([allow(["secretsmanager:GetSecretValue"], [secret])] if secret else []),
        ],
        after=made,
    )
    return followers(scope, site, publish, states, following)


DELTA_MEMORY_MB = 1_024


def delta_logs(scope: Construct, site: Site, publish: Publish, states: aws_dynamodb.Table) -> Followers:
    """What writes a Delta log beside each table. `scope`: its own."""
    lake = site.lake
    following = Following(
        code="delta",
        kind="DeltaLogs",
        id="Logs",
        says="Every snapshot has its version in the Delta log",
        environment={"DELTA": Delta().to_json()},
        properties={"Deployment": site.deployment.name},
        memory_mb=DELTA_MEMORY_MB,
        statements=[
            *lake.files("s3:GetObject", because="manifests, deletes and footers of all tables"),
            allow(["s3:PutObject", "s3:DeleteObject"], lake.delta_logs(), because="the logs of all tables"),
            *lake.key("kms:Decrypt", "kms:GenerateDataKey", through_s3=True),
        ],
    )
    return followers(scope, site, publish, states, following)


def lineage(
    scope: Construct, site: Site, publish: Publish, receiver: OpenLineage, states: aws_dynamodb.Table
) -> Followers:
    """What sends OpenLineage events. `scope`: its own."""
    secret = secret_arn(receiver.secret) if receiver.secret else None
    following = Following(
        code="lineage",
        kind="Lineage",
        id="Receiver",
        says="Every table's lineage is sent when it changes",
        environment={"LINEAGE": receiver.to_json(), "ACCOUNT": Stack.of(scope).account},
        properties={"Deployment": site.deployment.name},
        statements=[
            allow(["s3:GetObject"], site.lake.metadata(), because="the metadata files of all tables"),
            *site.lake.key("kms:Decrypt", through_s3=True),
            *([allow(["secretsmanager:GetSecretValue"], [secret])] if secret else []),
        ],
    )
    return followers(scope, site, publish, states, following)


def _published(deployment: Deployment, publish: Publish) -> dict[str, object]:
    """As `lambdas.followers.Published`. If databases are named after clusters, tables are known by name alone."""
    per_cluster = deployment.lake.namespace == "cluster_id"
    names = [each.table for each in publish.tables]
    return {
        "deployment": deployment.name,
        "tables": [] if per_cluster else [str(each) for each in publish.tables],
        "patterns": [*publish.patterns, *(names if per_cluster else ())],
        "database": None if per_cluster else deployment.lake.database,
    }


TIMEOUT = Duration.minutes(5)


def catalog_bootstrap(
    scope: Construct, site: Site, catalog: IcebergRest, bootstrap: CatalogBootstrap
) -> tuple[aws_secretsmanager.CfnSecret, CustomResource]:
    """A secret, and the custom resource that creates a principal with its credentials. `scope`: their own."""
    name = site.deployment.name
    credentials = generated_secret(scope, "Credentials", f"The principal of {name} at {catalog.uri}")
    acknowledge(credentials, {"SMG4": "Polaris rotates a principal's credentials only for itself"})
    administrator = secret_arn(bootstrap.secret)
    keeping = ["secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"]
    function = Function(
        scope,
        "Function",
        site,
        code="catalog_sync.polaris",
        timeout=TIMEOUT,
        statements=[
            allow(keeping, [credentials.ref]),
            *([allow(["secretsmanager:GetSecretValue"], [administrator])] if administrator else []),
        ],
    )
    names = {
        "deployment": name,
        "catalog": catalog.warehouse,
        "location": site.lake.warehouse,
        "role_arn": bootstrap.role_arn,
        "external_id": bootstrap.external_id,
    }
    properties = {
        "Catalog": catalog.to_json(),
        "Names": json.dumps(names),
        "Secret": credentials.ref,
    }
    return credentials, custom_resource(scope, "Made", "PolarisCatalog", function, properties, TIMEOUT)


class PublishStack(Stack):
    """Snowflake, an Iceberg REST catalog, Delta logs and lineage, if they are configured.

    states: how far each table is at each target; see `lambdas/publish_states.py`. catalog: synchronizes an Iceberg REST
    catalog. delta: writes Delta logs. lineage: sends OpenLineage events. snowflake: refreshes tables in Snowflake.
    """

    def __init__(self, scope: Construct, id: str, site: Site, publish: Publish) -> None:
        super().__init__(scope, id, description="calve: Snowflake, Iceberg REST catalogs and Delta logs")
        self.states = table_of_states(self, "States")
        CfnOutput(self, "PublishStatesTable", value=self.states.table_name)
        self.catalog: Followers | None = None
        if publish.iceberg_rest:
            within = Construct(self, "IcebergRest")
            self.catalog = catalog_sync(within, site, publish, publish.iceberg_rest, self.states)
        self.delta: Followers | None = None
        if publish.delta:
            self.delta = delta_logs(Construct(self, "Delta"), site, publish, self.states)
        self.lineage: Followers | None = None
        if publish.openlineage:
            within = Construct(self, "Lineage")
            self.lineage = lineage(within, site, publish, publish.openlineage, self.states)
        self.snowflake: SnowflakePublisher | None = None
        if publish.snowflake:
            shown = publish.snowflake, publish.tables
            self.snowflake = SnowflakePublisher(self, "Snowflake", site, *shown, self.states)
