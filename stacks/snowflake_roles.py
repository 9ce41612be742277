"""The two roles that Snowflake takes: one reads files, the other the catalog. Neither can write."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, Fn, aws_iam
from constructs import Construct

from calve.publishing import Snowflake
from stacks.lake import LakeStack
from stacks.roles import Statement, allow, explain

TABLES = "all tables of the lake"


def external_id() -> str:
    """By which AWS tells the stack's Snowflake from other people's: not guessed, not secret, the same in every deploy."""
    return f"calve-{Fn.select(2, Fn.split('/', Aws.STACK_ID))}"


class SnowflakeRoles(Construct):
    """Both are made before Snowflake says who it is: until then they trust nobody, unless the configuration knows.

    Attributes:
        changed: the roles whose trust a function completes; none where the configuration knows.
        catalog: None where the catalog is not Glue.
    """

    def __init__(self, scope: Construct, id: str, *, config: Snowflake, lake: LakeStack) -> None:
        super().__init__(scope, id)
        self._user = config.iam_user_arn
        self.volume = self._role("Volume", _reading(lake))
        self.catalog = None if config.open_catalog else self._role("Catalog", [_looking_up(lake)])
        self.changed = [each for each in (self.volume, self.catalog) if each and not self._user]

    def _role(self, id: str, statements: Sequence[Statement]) -> aws_iam.CfnRole:
        # As long as Snowflake's user is not known: this very account, by an id that nobody shows.
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


def _reading(lake: LakeStack) -> list[Statement]:
    statements = [
        allow(["s3:GetBucketLocation"], [lake.bucket_arn]),
        lake.listing(),
        allow(
            ["s3:GetObject", "s3:GetObjectVersion"],
            [lake.objects(prefix) for prefix in lake.data_prefixes],
            because=TABLES,
        ),
    ]
    if lake.key_arn:
        through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{Aws.REGION}.{Aws.URL_SUFFIX}"}}
        statements.append(allow(["kms:Decrypt"], [lake.key_arn], through_s3))
    return statements


def _looking_up(lake: LakeStack) -> Statement:
    return allow(
        ["glue:GetCatalog", "glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables"],
        lake.catalog_arns,
        because=TABLES,
    )
