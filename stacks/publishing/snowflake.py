"""Snowflake: the objects in its account, their refresh, and the key of the service user."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aws_cdk import Aws, CfnOutput, CustomResource, Duration, Fn, aws_dynamodb, aws_iam
from constructs import Construct

from calve.config.publishing import Snowflake
from calve.errors import ConfigError
from calve.names import TableName
from stacks.base.function import Function, Site, custom_resource, invoke
from stacks.base.lake_formation import grants
from stacks.base.resources import WRITING_STATES, CommitFeed, generated_secret, reading, text_file
from stacks.base.roles import Lake, Statement, allow, explain, secret_arn
from stacks.base.rotation import Rotation

MAKING = Duration.minutes(10)
FEED = Duration.minutes(2)
RECONCILE = Duration.minutes(5)
READ_KEY = "secretsmanager:GetSecretValue"


class SnowflakePublisher(Construct):
    """A Snowflake account that reads the deployment's tables. `states`: how far each table is.

    feed: brings commits to the function that follows them. reconcile: the function that checks every table. rotation: of the
    service user's key.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        site: Site,
        config: Snowflake,
        tables: Sequence[TableName],
        states: aws_dynamodb.Table,
    ) -> None:
        super().__init__(scope, id)
        if config.linked and site.lake.per_cluster:
            raise ConfigError(
                "publish.snowflake: a linked database needs to know its namespace, and one for each cluster is not known yet",
                fix="use `tables: iceberg`, or `lake: {namespace: database}`",
            )
        name = site.deployment.name
        self._site = site
        self._config = config
        self._states = states
        about = f"Key pair of {config.service_user} in Snowflake, for {name}"
        self.key = generated_secret(self, "Key", about)
        self._environment = {"SNOWFLAKE": config.to_json(), "KEY_SECRET": self.key.ref}
        self._roles = SnowflakeRoles(self, "Roles", config=config, lake=site.lake)
        objects = self._objects(tables)
        feed = self._refreshing("Feed", "feed", FEED, objects)
        self.feed = CommitFeed(self, "Commits", site, feed, FEED)
        self.reconcile = self._refreshing("Reconcile", "reconcile", RECONCILE, objects)
        says = "Looks at every table in Snowflake, whatever was announced"
        invoke(self, "Every", self.reconcile, description=says, schedule="rate(5 minutes)")
        self.rotation = Rotation(
            self,
            "Rotation",
            site,
            secret=self.key.ref,
            days=config.rotate_after_days,
            code="snowflake.keys",
            environment=self._environment,
            timeout=FEED,
        )
        self.rotation.node.add_dependency(objects)
        lookers = [feed.role.role_arn, self.reconcile.role.role_arn]
        if self._roles.catalog:
            lookers.append(self._roles.catalog.attr_arn)
        grants(Construct(self, "Grants"), site, lookers=lookers)

    def _objects(self, tables: Sequence[TableName]) -> CustomResource:
        config, lake, roles = self._config, self._site.lake, self._roles
        read = [_secret(each.secret) for each in (config, config.open_catalog) if each]
        changed = [each.attr_arn for each in roles.changed]
        listed = text_file(self, "Tables", json.dumps(list(map(str, tables))))
        function = Function(
            self,
            "Objects",
            self._site,
            code="snowflake.objects",
            timeout=MAKING,
            environment={"KEY_SECRET": self.key.ref, "STATES_TABLE": self._states.table_name},
            statements=[
                allow([READ_KEY], read, because="AWS ends a secret's ARN in six characters of its own"),
                allow([READ_KEY, "secretsmanager:PutSecretValue"], [self.key.ref]),
                allow(WRITING_STATES, [self._states.table_arn]),
                reading(listed),
                *([allow(["iam:UpdateAssumeRolePolicy"], changed)] if changed else []),
            ],
        )
        properties = {
            "Deployment": self._site.deployment.name,
            "Settings": config.to_json(),
            "Location": f"{lake.warehouse}/{lake.data_prefixes[0]}",
            "Database": "" if lake.per_cluster else lake.database,
            "VolumeRole": roles.volume.attr_arn,
            "CatalogRole": roles.catalog.attr_arn if roles.catalog else "",
            "ExternalId": external_id(),
            "TablesFile": listed.s3_object_url,
        }
        # The function's own timeout: later no answer can come.
        resource = custom_resource(self, "Made", "Snowflake", function, properties, MAKING)
        if not config.iam_user_arn:
            CfnOutput(self, "SnowflakeIamUser", value=resource.get_att_string("IamUserArn"))
        return resource

    def _refreshing(self, id: str, handler: str, timeout: Duration, objects: CustomResource) -> Function:
        lake = self._site.lake
        data = [lake.objects(prefix) for prefix in lake.data_prefixes]
        made = Function(
            self,
            id,
            self._site,
            code="snowflake.refresh",
            handler=handler,
            timeout=timeout,
            environment=self._environment | {"STATES_TABLE": self._states.table_name},
            statements=[
                allow([READ_KEY], [self.key.ref]),
                allow(["glue:GetTable"], lake.catalog_arns, because=TABLES),
                allow(["s3:GetObject"], data, because=TABLES),
                lake.listing(),  # distinguishes a missing file from a forbidden one
                allow(WRITING_STATES, [self._states.table_arn]),
                *lake.key("kms:Decrypt", through_s3=True),
            ],
        )
        made.node.add_dependency(objects)
        return made


def _secret(reference: str) -> str:
    """Raises: ConfigError: a function could not read it."""
    if found := secret_arn(reference):
        return found
    raise ConfigError(
        f"publish.snowflake: a deployed function cannot read the secret {reference}",
        fix="put it into Secrets Manager, and name it as aws:SECRET_ID",
    )


TABLES = "all tables of the lake"
LOOKING_UP = ("glue:GetCatalog", "glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables")


def external_id() -> str:
    """How AWS recognizes the Snowflake account of this stack: not guessable, not secret, the same in every deploy."""
    return f"calve-{Fn.select(2, Fn.split('/', Aws.STACK_ID))}"


class SnowflakeRoles(Construct):
    """Both roles are made before Snowflake reports its user. Until then they trust nobody, unless the configuration has the user.

    changed: the roles whose trust a function completes. catalog: None if the catalog is not Glue.
    """

    def __init__(self, scope: Construct, id: str, *, config: Snowflake, lake: Lake) -> None:
        super().__init__(scope, id)
        self._user = config.iam_user_arn
        looking = allow(LOOKING_UP, lake.catalog_arns, because=TABLES)
        reading = lake.files("s3:GetObject", "s3:GetObjectVersion", because=TABLES)
        self.volume = self._role("Volume", reading + lake.key("kms:Decrypt", through_s3=True))
        self.catalog = None if config.open_catalog else self._role("Catalog", [looking])
        self.changed = [each for each in (self.volume, self.catalog) if each and not self._user]

    def _role(self, id: str, statements: Sequence[Statement]) -> aws_iam.CfnRole:
        # While Snowflake's user is unknown: this account, by an id that is never shown.
        principal = {"AWS": self._user or f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:root"}
        shown = external_id() if self._user else f"nobody-{external_id()}"
        trust = {
            "Effect": "Allow",
            "Principal": principal,
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": {"sts:ExternalId": shown}},
        }
        document = aws_iam.PolicyDocument(statements=[each.policy() for each in statements])
        role = aws_iam.CfnRole(
            self,
            id,
            description="Snowflake reads the lake",
            assume_role_policy_document={"Version": "2012-10-17", "Statement": [trust]},
            policies=[aws_iam.CfnRole.PolicyProperty(policy_name="Work", policy_document=document)],
        )
        explain(role, statements)
        return role
