"""Tables in Snowflake and in an Iceberg REST catalog. Stateless: all of it can be made again from the lake."""

from __future__ import annotations

import json
from dataclasses import replace

from aws_cdk import CfnOutput, CustomResource, Duration, RemovalPolicy, Stack, aws_dynamodb
from aws_cdk import aws_secretsmanager as secrets
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.publishing import IcebergRest, Publish
from stacks.base.bundling import Runtime
from stacks.base.function import Function, invoke
from stacks.base.resources import CommitFeed, table_of_states
from stacks.base.roles import Lake, Statement, acknowledge, allow, secret_arn
from stacks.publishing.snowflake import SnowflakePublisher

FEED = Duration.minutes(1)
RECONCILE = Duration.minutes(5)
DEPLOY = Duration.minutes(15)
ALL_ROLES = "PRINCIPAL_ROLE:ALL"
STATES = ("dynamodb:GetItem", "dynamodb:Scan", "dynamodb:UpdateItem", "dynamodb:DeleteItem")


class CatalogSync(Construct):
    """Three functions of one code.

    The triggers depend on the custom resource: a delete removes them first, so nothing is registered while tables are dropped.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        publish: Publish,
        catalog: IcebergRest,
        lake: Lake,
        runtime: Runtime,
        states: aws_dynamodb.Table,
    ) -> None:
        super().__init__(scope, id)
        made = None
        self._secret = secret_arn(catalog.secret) if catalog.secret else None
        if catalog.bootstrap:
            made = CatalogBootstrap(
                self, "Bootstrap", deployment=deployment, catalog=catalog, lake=lake, runtime=runtime
            )
            self._secret = made.credentials.ref
            catalog = replace(catalog, secret=f"aws:{self._secret}", scope=catalog.scope or ALL_ROLES)
        self._deployment = deployment
        self._catalog = catalog
        self._lake = lake
        self._runtime = runtime
        self._states = states
        self._published = _published(deployment, publish)
        resource = self._deploy()
        if made:
            resource.node.add_dependency(made.made)
        follow = self._function("Follow", "feed", FEED)
        self.feed = CommitFeed(self, "Feed", deployment=deployment, function=follow, timeout=FEED)
        self.feed.node.add_dependency(resource)
        self.reconcile = self._function("Reconcile", "reconcile", RECONCILE)
        rule = invoke(
            self,
            "Every",
            self.reconcile,
            description="Every difference is found and repaired",
            schedule="rate(5 minutes)",
        )
        rule.node.add_dependency(resource)

    def _deploy(self) -> CustomResource:
        function = self._function("Deploy", "handle", DEPLOY)
        resource = CustomResource(
            self,
            "Catalog",
            resource_type="Custom::CalveCatalogSync",
            service_token=function.function.function_arn,
            service_timeout=DEPLOY,
            properties={
                "Catalog": self._catalog.to_json(),
                "Published": json.dumps(self._published),
                "StatesTable": self._states.table_name,
            },
        )
        resource.node.add_dependency(function)
        return resource

    def _function(self, id: str, handler: str, timeout: Duration) -> Function:
        """`PUBLISHED` lists no tables: they have rows, and a function's environment has a size limit."""
        return Function(
            self,
            id,
            code="catalog_sync",
            handler=f"handler.{handler}",
            runtime=self._runtime,
            deployment=self._deployment.name,
            timeout=timeout,
            environment={
                "CATALOG": self._catalog.to_json(),
                "PUBLISHED": json.dumps(self._published | {"tables": []}),
                "STATES_TABLE": self._states.table_name,
            },
            statements=self._statements(),
        )

    def _statements(self) -> list[Statement]:
        lake = self._lake
        statements = [
            allow(
                ["glue:GetTable", "glue:GetTables", "glue:GetDatabases"],
                lake.catalog_arns,
                because="all tables of the lake",
            ),
            allow(
                ["s3:GetObject"],
                lake.metadata(),
                because="the metadata files of all tables",
            ),
            allow(STATES, [self._states.table_arn]),
        ]
        statements += lake.key("kms:Decrypt", through_s3=True)
        if self._secret:
            statements.append(allow(["secretsmanager:GetSecretValue"], [self._secret]))
        return statements


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


class CatalogBootstrap(Construct):
    """The custom resource that creates a principal, and the secret with its credentials."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        catalog: IcebergRest,
        lake: Lake,
        runtime: Runtime,
    ) -> None:
        super().__init__(scope, id)
        self.credentials = secrets.CfnSecret(
            self,
            "Credentials",
            description=f"The principal of {deployment.name} at {catalog.uri}",
            # A placeholder for the first version: the function replaces it by the credentials.
            generate_secret_string=secrets.CfnSecret.GenerateSecretStringProperty(exclude_punctuation=True),
        )
        self.credentials.apply_removal_policy(RemovalPolicy.DESTROY)
        acknowledge(self.credentials, {"SMG4": "Polaris rotates a principal's credentials only for itself"})
        bootstrap = catalog.bootstrap
        administrator = secret_arn(bootstrap.secret) if bootstrap else None
        function = Function(
            self,
            "Function",
            code="catalog_sync",
            handler="bootstrap.handle",
            runtime=runtime,
            deployment=deployment.name,
            timeout=TIMEOUT,
            statements=[
                allow(
                    ["secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"],
                    [self.credentials.ref],
                ),
                *([allow(["secretsmanager:GetSecretValue"], [administrator])] if administrator else []),
            ],
        )
        names = {
            "deployment": deployment.name,
            "catalog": catalog.warehouse,
            "location": lake.warehouse,
            "role_arn": bootstrap and bootstrap.role_arn,
            "external_id": bootstrap and bootstrap.external_id,
        }
        self.made = CustomResource(
            self,
            "Made",
            resource_type="Custom::CalvePolarisCatalog",
            service_token=function.function.function_arn,
            service_timeout=TIMEOUT,
            properties={
                "Catalog": catalog.to_json(),
                "Names": json.dumps(names),
                "Secret": self.credentials.ref,
            },
        )
        self.made.node.add_dependency(function)


class PublishStack(Stack):
    """Snowflake and an Iceberg REST catalog, if they are configured.

    Attributes:
        states: how far each table is at each target; see `lambdas/publish_states.py`.
        catalog: synchronizes an Iceberg REST catalog.
        snowflake: refreshes tables in Snowflake.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        publish: Publish,
        lake: Lake,
        runtime: Runtime,
    ) -> None:
        super().__init__(scope, id, description="calve: Snowflake and Iceberg REST catalogs")
        self.states = table_of_states(self, "States")
        CfnOutput(self, "PublishStatesTable", value=self.states.table_name)
        self.catalog: CatalogSync | None = None
        if publish.iceberg_rest:
            self.catalog = CatalogSync(
                self,
                "IcebergRest",
                deployment=deployment,
                publish=publish,
                catalog=publish.iceberg_rest,
                lake=lake,
                runtime=runtime,
                states=self.states,
            )
        self.snowflake: SnowflakePublisher | None = None
        if publish.snowflake:
            self.snowflake = SnowflakePublisher(
                self,
                "Snowflake",
                deployment=deployment,
                config=publish.snowflake,
                tables=publish.tables,
                lake=lake,
                states=self.states,
                runtime=runtime,
            )
