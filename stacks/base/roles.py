"""ARNs, statements and roles. Every role trusts one service on behalf of this account; every wildcard has its reason.

ARNs are built from names that the user chose, so they are known before a deploy. Findings of cdk-nag that are intended are
acknowledged beside the construct.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Acknowledgment, Aws, Stack, Validations, aws_iam
from constructs import Construct

from calve.config.job import Catalog, S3Tables
from calve.config.maintenance import ORPHANS_NOTE
from calve.outputs.announcement import SOURCE
from calve.outputs.job_status import FOLDER

FINDING = (
    "s3tables:GetTableBucket", "s3tables:ListNamespaces", "s3tables:GetNamespace", "s3tables:ListTables", "s3tables:GetTable",
    "s3tables:GetTableMetadataLocation",
)  # fmt: skip
READING = (*FINDING, "s3tables:GetTableData")
"""S3 Tables has no right to the metadata of a table without its rows."""
CHANGING = (
    "s3tables:CreateNamespace", "s3tables:CreateTable", "s3tables:PutTableData", "s3tables:UpdateTableMetadataLocation",
)  # fmt: skip
METADATA = (".metadata.json", ".avro", f"/{ORPHANS_NOTE}")
"""How names of files below `metadata/` end. `*` in a policy also matches folders, so any other ending may be a data file's."""


def arn(service: str, resource: str, *, region: str = Aws.REGION) -> str:
    """An ARN in the stack's account, and in its region unless `region` is given."""
    return f"arn:{Aws.PARTITION}:{service}:{region}:{Aws.ACCOUNT_ID}:{resource}"


def bucket_arn(bucket: str) -> str:
    return f"arn:{Aws.PARTITION}:s3:::{bucket}"


def catalog_arns(database: str) -> list[str]:
    """The catalog, one database and its tables. Glue checks all three."""
    return [arn("glue", "catalog"), arn("glue", f"database/{database}"), arn("glue", f"table/{database}/*")]


def start_name(deployment: str) -> str:
    return f"{deployment}-start"


def start_arn(deployment: str) -> str:
    return arn("lambda", f"function:{start_name(deployment)}")


def dashboard_name(deployment: str) -> str:
    """With the region: dashboards have none."""
    return f"{deployment}-{Aws.REGION}"


def secret_id(reference: str) -> str:
    """The name or ARN in an `aws:` reference."""
    return reference.removeprefix("aws:")


def secret_arn(reference: str) -> str | None:
    """The ARN of an `aws:` reference; AWS adds six characters to a secret's name. None for other references."""
    kind, _, name = reference.partition(":")
    if kind != "aws":
        return None
    return name if name.startswith("arn:") else arn("secretsmanager", f"secret:{name}-??????")


def acknowledge(construct: Construct, reasons: dict[str, str]) -> None:
    """Accept findings such as `IAM5[Resource::*]`, with a reason, on a construct and all below it."""
    for finding, reason in reasons.items():
        known = Acknowledgment(id=f"AwsSolutions::AwsSolutions-{finding}", reason=reason)
        Validations.of(construct).acknowledge(known)


@dataclass(frozen=True, slots=True)
class Statement:
    """Actions, each with its full name. `because`: why a resource needs a wildcard."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Mapping[str, Mapping[str, object]] | None = None
    because: str | None = None
    effect: aws_iam.Effect = aws_iam.Effect.ALLOW

    def policy(self) -> aws_iam.PolicyStatement:
        actions, resources = list(self.actions), list(self.resources)
        return aws_iam.PolicyStatement(
            effect=self.effect, actions=actions, resources=resources, conditions=self.conditions
        )


def allow(
    actions: Sequence[str],
    resources: Sequence[str],
    conditions: Mapping[str, Mapping[str, object]] | None = None,
    *,
    because: str | None = None,
) -> Statement:
    """An Allow statement. Raises ValueError: a wildcard without a reason."""
    if because is None and any("*" in text for text in (*actions, *resources)):
        raise ValueError(f"{', '.join(actions)} on a wildcard, without a reason")
    return Statement(tuple(actions), tuple(resources), conditions, because)


def deny(
    actions: Sequence[str],
    resources: Sequence[str],
    conditions: Mapping[str, Mapping[str, object]] | None = None,
) -> Statement:
    return Statement(tuple(actions), tuple(resources), conditions, effect=aws_iam.Effect.DENY)


def announcing(kinds: Sequence[str]) -> Statement:
    """Put these calve events, and no others, on the account's default bus."""
    conditions = {"events:source": SOURCE, "events:detail-type": list(kinds)}
    return allow(["events:PutEvents"], [arn("events", "event-bus/default")], {"StringEquals": conditions})


def msk_key(*actions: str) -> Statement:
    """Use the key of an MSK secret, only in requests that Secrets Manager makes."""
    through = {"StringEquals": {"kms:ViaService": f"secretsmanager.{Aws.REGION}.{Aws.URL_SUFFIX}"}}
    because = "a secret of MSK is encrypted by a key of its owner's, which the secret alone names"
    return allow(actions, [arn("kms", "key/*")], through, because=because)


@dataclass(frozen=True, slots=True)
class Lake:
    """The names and ARNs of a deployment's lake.

    prefix: of all its objects, with a trailing slash; empty if the bucket is the lake's alone. per_cluster: each Kafka cluster
    has a database of its own; `database` is then not used. clusters: these databases, if they are known. key_arn: the key
    that encrypts the bucket; None if an imported bucket has encryption of its own. key_made: the key belongs to the
    deployment, and has the policy that CloudWatch Logs needs. catalog: what holds the tables; None: Glue.
    """

    deployment: str
    bucket: str
    prefix: str
    database: str
    per_cluster: bool
    key_arn: str | None
    key_made: bool
    clusters: tuple[str, ...] = ()
    catalog: Catalog | None = None

    @property
    def bucket_arn(self) -> str:
        return bucket_arn(self.bucket)

    @property
    def warehouse(self) -> str:
        """The S3 URI of the folder of all tables, without a trailing slash."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def data_prefixes(self) -> list[str]:
        """The folders of the databases. Where the job finds the names of databases, it is the whole lake."""
        return [f"{each}/".removeprefix("*/") for each in self.databases]

    @property
    def databases(self) -> tuple[str, ...]:
        """`*`: the job finds their names."""
        return (self.clusters or ("*",)) if self.per_cluster else (self.database,)

    @property
    def catalog_arns(self) -> list[str]:
        """What Glue checks where tables are read."""
        return catalog_arns("*" if self.per_cluster else self.database)

    @property
    def written_arns(self) -> list[str]:
        """What Glue checks where tables are written."""
        return list(dict.fromkeys(each for database in self.databases for each in catalog_arns(database)))

    def finding(self, glue: Sequence[str], because: str, *, rows: bool = False) -> list[Statement]:
        """Find tables in the catalog: these actions of Glue, or what S3 Tables needs. A REST catalog has rights of its own.

        rows: S3 Tables also lets the files be read; elsewhere `files` does.
        """
        return self._in_catalog(glue, self.catalog_arns, READING if rows else FINDING, because)

    def changing(self, glue: Sequence[str], because: str) -> list[Statement]:
        """Make and change tables in the catalog, as `finding`."""
        return self._in_catalog(glue, self.written_arns, CHANGING, because)

    def _in_catalog(
        self, glue: Sequence[str], arns: Sequence[str], s3_tables: Sequence[str], because: str
    ) -> list[Statement]:
        match self.catalog:
            case None:
                return [allow(glue, arns, because=because)]
            case S3Tables(bucket_arn=bucket):
                return [allow(s3_tables, [bucket, f"{bucket}/table/*"], because=because)]
            case _:
                return []

    def objects(self, prefix: str) -> str:
        """The ARN of all objects below a prefix of the lake."""
        return f"{self.bucket_arn}/{self.prefix}{prefix}*"

    def metadata(self, ends: Sequence[str] = METADATA) -> list[str]:
        """The ARNs of the files below `metadata/` of all tables."""
        folders = [f"{self.bucket_arn}/{self.prefix}{database}/*/metadata" for database in self.databases]
        return [
            f"{below}{end}" if end.startswith("/") else f"{below}/*{end}" for below in folders for end in ends
        ]

    def delta_logs(self) -> list[str]:
        """The ARNs of the objects of all Delta logs."""
        tables = [f"{self.bucket_arn}/{self.prefix}{database}/*" for database in self.databases]
        return [f"{below}/{folder}/*" for below in tables for folder in ("_delta_log", "_delta_vectors")]

    def control(self, job: str) -> str:
        """The key of a job's control object."""
        return f"{self.prefix}_calve/jobs/{job}.json"

    def status_key(self, job: str) -> str:
        """The key of a job's report of its tables; `*`: of any job."""
        return f"{self.prefix}{FOLDER}{self.deployment}/{job}.json"

    def status(self, job: str) -> str:
        """The ARN of that report."""
        return f"{self.bucket_arn}/{self.status_key(job)}"

    def listing(self) -> Statement:
        """List the bucket; of a shared bucket only the lake's prefix."""
        below = {"StringLike": {"s3:prefix": [f"{self.prefix}*"]}} if self.prefix else None
        return allow(["s3:ListBucket"], [self.bucket_arn], below)

    def files(self, *actions: str, because: str, also: Sequence[str] = ()) -> list[Statement]:
        """Find and list the bucket, and do this with the files of the tables. `also`: further prefixes."""
        files = [self.objects(prefix) for prefix in (*self.data_prefixes, *also)]
        finding = allow(["s3:GetBucketLocation"], [self.bucket_arn])
        return [finding, self.listing(), allow(actions, files, because=because)]

    def secret(self) -> list[Statement]:
        """Read the credentials of a REST catalog."""
        found = secret_arn(self.catalog.secret) if self.catalog and self.catalog.secret else None
        return [allow(["secretsmanager:GetSecretValue"], [found])] if found else []

    def key(self, *actions: str, through_s3: bool = False) -> list[Statement]:
        """Use the key, if there is one. `through_s3`: only in requests that S3 makes."""
        if self.key_arn is None:
            return []
        service = {"StringEquals": {"kms:ViaService": f"s3.{Aws.REGION}.{Aws.URL_SUFFIX}"}}
        return [allow(actions, [self.key_arn], service if through_s3 else None)]


def service_role(
    scope: Construct,
    id: str,
    *,
    service: str,
    on_behalf: bool = False,
    source_arn: str | None = None,
    statements: Sequence[Statement] = (),
) -> aws_iam.Role:
    """A role for one AWS service.

    `on_behalf`: the service names the account that it acts for. `source_arn`: it names the resource, too; then no other schedule
    can use the role. Nobody has seen which resource Glue names.
    """
    conditions: dict[str, dict[str, str]] = {}
    if on_behalf or source_arn:
        conditions["StringEquals"] = {"aws:SourceAccount": Aws.ACCOUNT_ID}
    if source_arn:
        conditions["ArnLike"] = {"aws:SourceArn": source_arn}
    document = aws_iam.PolicyDocument(statements=[each.policy() for each in statements])
    role = aws_iam.Role(
        scope,
        id,
        assumed_by=aws_iam.ServicePrincipal(service, conditions=conditions or None),
        inline_policies={"Work": document} if statements else None,
    )
    explain(role, statements)
    return role


def policy_for_people(
    scope: Construct, id: str, name: str, description: str, statements: Sequence[Statement]
) -> aws_iam.ManagedPolicy:
    """A managed policy. Identity Center refers to it by its name, with the region: IAM has no regions."""
    policy = aws_iam.ManagedPolicy(
        scope,
        id,
        managed_policy_name=f"{name}-{Aws.REGION}",
        description=description,
        statements=[each.policy() for each in statements],
    )
    explain(policy, statements)
    return policy


def grant(role: aws_iam.Role, statements: Iterable[Statement]) -> None:
    """Add rights to a role in a separate policy, for resources that depend on the role."""
    for each in statements:
        role.add_to_policy(each.policy())
        explain(role, [each])


def explain(construct: Construct, statements: Iterable[Statement]) -> None:
    """Give cdk-nag the reasons of all wildcards."""
    stack = Stack.of(construct)
    reasons = {
        f"IAM5[Resource::{_as_nag_writes(stack.resolve(resource))}]": str(each.because)
        for each in statements
        for resource in each.resources
        if "*" in resource and each.because
    }
    if reasons:
        acknowledge(construct, reasons)


def _as_nag_writes(value: Any) -> str:
    """A resolved ARN as cdk-nag's findings write it: references in angle brackets."""
    match value:
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Sub": template}:
            return str(template).replace("${", "<").replace("}", ">")
        case {"Fn::Join": ["", parts]}:
            return "".join(map(_as_nag_writes, parts))
        case _:
            return str(value)
