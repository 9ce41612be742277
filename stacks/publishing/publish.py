"""Tables in Snowflake and in an Iceberg REST catalog. Stateless: all of it can be made again from the lake."""

from __future__ import annotations

import json
from dataclasses import replace

from aws_cdk import CfnOutput, CustomResource, Duration, Stack, aws_dynamodb, aws_secretsmanager
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.publishing import CatalogBootstrap, IcebergRest, Publish
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
from stacks.base.roles import acknowledge, allow, secret_arn
from stacks.publishing.snowflake import SnowflakePublisher

FEED = Duration.minutes(1)
RECONCILE = Duration.minutes(5)
DEPLOY = Duration.minutes(15)
ALL_ROLES = "PRINCIPAL_ROLE:ALL"


class CatalogSync(Construct):
    """Three functions of one code.

    The triggers depend on the custom resource: a delete removes them first, so nothing is registered while tables are dropped.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        site: Site,
        publish: Publish,
        catalog: IcebergRest,
        states: aws_dynamodb.Table,
    ) -> None:
        super().__init__(scope, id)
        made = None
        self._secret = secret_arn(catalog.secret) if catalog.secret else None
        if catalog.bootstrap:
            within = Construct(self, "Bootstrap")
            credentials, made = catalog_bootstrap(within, site, catalog, catalog.bootstrap)
            self._secret = credentials.ref
            catalog = replace(catalog, secret=f"aws:{self._secret}", scope=catalog.scope or ALL_ROLES)
        self._site = site
        self._catalog = catalog.to_json()
        self._states = states
        published = _published(site.deployment, publish)
        self._published = text_file(self, "Published", json.dumps(published))
        properties = {
            "Catalog": self._catalog,
            "Published": json.dumps(published | {"tables": [], "patterns": []}),
            "PublishedFile": self._published.s3_object_url,
            "StatesTable": states.table_name,
        }
        deploy = self._function("Deploy", "handle", DEPLOY)
        resource = custom_resource(self, "Catalog", "CatalogSync", deploy, properties, DEPLOY)
        if made:
            resource.node.add_dependency(made)
        follow = self._function("Follow", "feed", FEED)
        self.feed = CommitFeed(self, "Feed", site, follow, FEED)
        self.feed.node.add_dependency(resource)
        self.reconcile = self._function("Reconcile", "reconcile", RECONCILE)
        lookers = [each.role.role_arn for each in (deploy, follow, self.reconcile)]
        grants(Construct(self, "Grants"), site, lookers=lookers, before=[resource])
        says = "Every difference is found and repaired"
        rule = invoke(self, "Every", self.reconcile, description=says, schedule="rate(5 minutes)")
        rule.node.add_dependency(resource)

    def _function(self, id: str, handler: str, timeout: Duration) -> Function:
        lake = self._site.lake
        finding = ["glue:GetTable", "glue:GetTables", "glue:GetDatabases"]
        secret = [allow(["secretsmanager:GetSecretValue"], [self._secret])] if self._secret else []
        return Function(
            self,
            id,
            self._site,
            code="catalog_sync",
            handler=handler,
            timeout=timeout,
            environment={
                "CATALOG": self._catalog,
                "PUBLISHED_FILE": self._published.s3_object_url,
                "STATES_TABLE": self._states.table_name,
            },
            statements=[
                allow(finding, lake.catalog_arns, because="all tables of the lake"),
                allow(["s3:GetObject"], lake.metadata(), because="the metadata files of all tables"),
                allow(WRITING_STATES, [self._states.table_arn]),
                reading(self._published),
                *lake.key("kms:Decrypt", through_s3=True),
                *secret,
            ],
        )


def _published(deployment: Deployment, publish: Publish) -> dict[str, object]:
    """As `lambdas.catalog_sync.sync.Published`. If databases are named after clusters, tables are known by name alone."""
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
    """Snowflake and an Iceberg REST catalog, if they are configured.

    states: how far each table is at each target; see `lambdas/publish_states.py`. catalog: synchronizes an Iceberg REST
    catalog. snowflake: refreshes tables in Snowflake.
    """

    def __init__(self, scope: Construct, id: str, site: Site, publish: Publish) -> None:
        super().__init__(scope, id, description="calve: Snowflake and Iceberg REST catalogs")
        self.states = table_of_states(self, "States")
        CfnOutput(self, "PublishStatesTable", value=self.states.table_name)
        self.catalog: CatalogSync | None = None
        if publish.iceberg_rest:
            self.catalog = CatalogSync(self, "IcebergRest", site, publish, publish.iceberg_rest, self.states)
        self.snowflake: SnowflakePublisher | None = None
        if publish.snowflake:
            shown = publish.snowflake, publish.tables
            self.snowflake = SnowflakePublisher(self, "Snowflake", site, *shown, self.states)
