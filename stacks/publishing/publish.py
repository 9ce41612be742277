"""Tables reach those who query them elsewhere. Stateless: all that is there can be made again from the lake."""

from __future__ import annotations

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.publishing import Publish
from stacks.base.bundling import Runtime
from stacks.base.roles import Lake
from stacks.base.tables import table_of_states
from stacks.publishing.catalog_sync import CatalogSync
from stacks.publishing.snowflake import SnowflakePublisher


class PublishStack(Stack):
    """Snowflake and an Iceberg REST catalog, as far as they are named.

    Attributes:
        states: how far each table is at each of them; see `lambdas/publish_states.py`.
        catalog: what keeps an Iceberg REST catalog equal, where one is named.
        snowflake: what keeps tables in Snowflake current, where an account is named.
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
