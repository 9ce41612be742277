"""Snowflake: the objects in its account, their refresh, and the key of the service user."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, CfnOutput, CustomResource, Duration, Fn, RemovalPolicy, aws_dynamodb, aws_iam
from aws_cdk import aws_secretsmanager as secrets
from constructs import Construct

from calve.config.deployment import Deployment
from calve.config.publishing import Snowflake
from calve.errors import ConfigError
from calve.names import TableName
from stacks.base.bundling import Runtime
from stacks.base.function import Function, invoke
from stacks.base.resources import CommitFeed
from stacks.base.roles import Lake, Statement, allow, explain, secret_arn
from stacks.base.rotation import Rotation

MAKING = Duration.minutes(10)
FEED = Duration.minutes(2)
RECONCILE = Duration.minutes(5)
EVERY = Duration.minutes(5)
READ_KEY = "secretsmanager:GetSecretValue"


class SnowflakePublisher(Construct):
    """A Snowflake account that reads the deployment's tables. `states`: how far each table is.

    Attributes:
        feed: brings commits to the function that follows them. reconcile: the function that checks every table.
        rotation: of the service user's key.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        config: Snowflake,
        tables: Sequence[TableName],
        lake: Lake,
        states: aws_dynamodb.Table,
        runtime: Runtime,
    ) -> None:
        super().__init__(scope, id)
        if config.linked and lake.per_cluster:
            raise ConfigError(
                "publish.snowflake: a linked database needs to know its namespace, and one for each cluster is not known yet",
                fix="use `tables: iceberg`, or `lake: {namespace: database}`",
            )
        self._deployment = deployment.name
        self._config = config
        self._runtime = runtime
        self.key = secrets.CfnSecret(
            self,
            "Key",
            description=f"Key pair of {config.service_user} in Snowflake, for {deployment.name}",
            # A placeholder for the first version: the deploy replaces it by the first key pair.
            generate_secret_string=secrets.CfnSecret.GenerateSecretStringProperty(exclude_punctuation=True),
        )
        self.key.apply_removal_policy(RemovalPolicy.DESTROY)
        objects = self._objects(tables, lake, states)
        self._refresh(deployment, lake, states, objects)
        self.rotation = Rotation(
            self,
            "Rotation",
            secret=self.key.ref,
            days=config.rotate_after_days,
            code="snowflake_keys",
            runtime=runtime,
            deployment=deployment.name,
            environment=self._environment,
            timeout=FEED,
        )
        self.rotation.node.add_dependency(objects)

    @property
    def _environment(self) -> dict[str, str]:
        return {"SNOWFLAKE": self._config.to_json(), "KEY_SECRET": self.key.ref}

    def _objects(self, tables: Sequence[TableName], lake: Lake, states: aws_dynamodb.Table) -> CustomResource:
        config = self._config
        roles = SnowflakeRoles(self, "Roles", config=config, lake=lake)
        read = [_secret(config.secret)]
        if config.open_catalog:
            read.append(_secret(config.open_catalog.secret))
        statements = [
            allow([READ_KEY], read, because="AWS ends a secret's ARN in six characters of its own"),
            allow([READ_KEY, "secretsmanager:PutSecretValue"], [self.key.ref]),
            _writing(states),
        ]
        if roles.changed:
            changed = [each.attr_arn for each in roles.changed]
            statements.append(allow(["iam:UpdateAssumeRolePolicy"], changed))
        function = Function(
            self,
            "Objects",
            code="snowflake_objects",
            runtime=self._runtime,
            deployment=self._deployment,
            timeout=MAKING,
            environment={"KEY_SECRET": self.key.ref, "STATES_TABLE": states.table_name},
            statements=statements,
        )
        resource = CustomResource(
            self,
            "Made",
            resource_type="Custom::CalveSnowflake",
            service_token=function.function.function_arn,
            service_timeout=MAKING,  # the function's own timeout: later no answer can come
            properties={
                "Deployment": self._deployment,
                "Settings": config.to_json(),
                "Location": f"{lake.warehouse}/{lake.data_prefixes[0]}",
                "Database": "" if lake.per_cluster else lake.database,
                "VolumeRole": roles.volume.attr_arn,
                "CatalogRole": roles.catalog.attr_arn if roles.catalog else "",
                "ExternalId": external_id(),
                "Tables": list(map(str, tables)),
            },
        )
        resource.node.add_dependency(function)
        if not config.iam_user_arn:
            CfnOutput(self, "SnowflakeIamUser", value=resource.get_att_string("IamUserArn"))
        return resource

    def _refresh(
        self,
        deployment: Deployment,
        lake: Lake,
        states: aws_dynamodb.Table,
        objects: CustomResource,
    ) -> None:
        environment = self._environment | {"STATES_TABLE": states.table_name}

        def function(id: str, handler: str, timeout: Duration) -> Function:
            made = Function(
                self,
                id,
                code="snowflake_refresh",
                handler=handler,
                runtime=self._runtime,
                deployment=self._deployment,
                timeout=timeout,
                environment=environment,
                statements=self._looking(lake, states),
            )
            made.node.add_dependency(objects)
            return made

        feed = function("Feed", "handler.feed", FEED)
        self.feed = CommitFeed(self, "Commits", deployment=deployment, function=feed, timeout=FEED)
        self.reconcile = function("Reconcile", "handler.reconcile", RECONCILE)
        invoke(
            self,
            "Every",
            self.reconcile,
            description="Looks at every table in Snowflake, whatever was announced",
            schedule=f"rate({int(EVERY.to_minutes())} minutes)",
        )

    def _looking(self, lake: Lake, states: aws_dynamodb.Table) -> list[Statement]:
        statements = [
            allow([READ_KEY], [self.key.ref]),
            allow(["glue:GetTable"], lake.catalog_arns, because=TABLES),
            allow(["s3:GetObject"], [lake.objects(prefix) for prefix in lake.data_prefixes], because=TABLES),
            lake.listing(),  # distinguishes a missing file from a forbidden one
            _writing(states),
        ]
        return statements + lake.key("kms:Decrypt", through_s3=True)


def _writing(states: aws_dynamodb.Table) -> Statement:
    return allow(
        ["dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:Scan"],
        [states.table_arn],
    )


def _secret(reference: str) -> str:
    """Raises: ConfigError: a function could not read it."""
    if found := secret_arn(reference):
        return found
    raise ConfigError(
        f"publish.snowflake: a deployed function cannot read the secret {reference}",
        fix="put it into Secrets Manager, and name it as aws:SECRET_ID",
    )


TABLES = "all tables of the lake"


def external_id() -> str:
    """How AWS recognizes the Snowflake account of this stack: not guessable, not secret, the same in every deploy."""
    return f"calve-{Fn.select(2, Fn.split('/', Aws.STACK_ID))}"


class SnowflakeRoles(Construct):
    """Both roles are made before Snowflake reports its user. Until then they trust nobody, unless the configuration has the user.

    Attributes:
        changed: the roles whose trust a function completes; none if the configuration has the user.
        catalog: None if the catalog is not Glue.
    """

    def __init__(self, scope: Construct, id: str, *, config: Snowflake, lake: Lake) -> None:
        super().__init__(scope, id)
        self._user = config.iam_user_arn
        self.volume = self._role("Volume", _reading(lake))
        self.catalog = None if config.open_catalog else self._role("Catalog", [_looking_up(lake)])
        self.changed = [each for each in (self.volume, self.catalog) if each and not self._user]

    def _role(self, id: str, statements: Sequence[Statement]) -> aws_iam.CfnRole:
        # While Snowflake's user is unknown: this account, by an id that is never shown.
        principal = {"AWS": self._user or f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:root"}
        shown = external_id() if self._user else f"nobody-{external_id()}"
        role = aws_iam.CfnRole(
            self,
            id,
            description="Snowflake reads the lake",
            assume_role_policy_document={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": principal,
                        "Action": "sts:AssumeRole",
                        "Condition": {"StringEquals": {"sts:ExternalId": shown}},
                    }
                ],
            },
            policies=[
                aws_iam.CfnRole.PolicyProperty(
                    policy_name="Work",
                    policy_document=aws_iam.PolicyDocument(statements=[each.policy() for each in statements]),
                )
            ],
        )
        explain(role, statements)
        return role


def _reading(lake: Lake) -> list[Statement]:
    statements = [
        allow(["s3:GetBucketLocation"], [lake.bucket_arn]),
        lake.listing(),
        allow(
            ["s3:GetObject", "s3:GetObjectVersion"],
            [lake.objects(prefix) for prefix in lake.data_prefixes],
            because=TABLES,
        ),
    ]
    return statements + lake.key("kms:Decrypt", through_s3=True)


def _looking_up(lake: Lake) -> Statement:
    return allow(
        ["glue:GetCatalog", "glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables"],
        lake.catalog_arns,
        because=TABLES,
    )
