"""Roles of the emulator, and for each action of the stacks' policies a request that needs it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.embedded import aws
from cli.embedded.stack import Stack

A = aws.ACCOUNT
KEY = "11111111-2222-3333-4444-555555555555"
NO_SERVICE_HERE = {
    *("xray", "kafka-cluster", "kafka", "athena"),
    "ec2",  # Lambda and Glue make their network interfaces
    "s3tables",  # a gate before a REST catalog is in its place
}
"""Whose actions no request of a test reaches the emulator for."""
NO_REQUEST = {"lakeformation:GetDataAccess"}
"""Rights that AWS asks for inside another service; no client has such a request."""
REFUSALS = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "403")

Statement = Mapping[str, Any]


def allow(action: str, resource: str, condition: Mapping[str, Any] | None = None) -> Statement:
    made: dict[str, Any] = {"Effect": "Allow", "Action": action, "Resource": resource}
    return made | ({"Condition": condition} if condition else {})


EVERYTHING = allow("*", "*")


def role(
    stack: Stack, *statements: Statement, service: str = "lambda.amazonaws.com", boundary: str = ""
) -> str:
    """Make a role that the service may assume; its ARN."""
    iam, name = aws.client("iam", stack.aws_endpoint), f"r{uuid.uuid4().hex[:12]}"
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": service}}
    limit = {"PermissionsBoundary": boundary} if boundary else {}
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document(trust), **limit)
    if statements:
        iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=document(*statements))
    return str(made["Role"]["Arn"])


def document(*statements: Statement) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def client(stack: Stack, arn: str, service: str) -> Any:
    """A client of the role, which signs its requests with the role's own key."""
    key = aws.acting_as(arn, "lambda.amazonaws.com", stack.aws_endpoint)
    return aws.client(service, stack.aws_endpoint, *key.values())


@dataclass(frozen=True)
class Case:
    """A request, and the rights it needs, each of them. Names that do not exist are as good: rights come first."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    needs: Sequence[Statement]
    of: str = field(default="")

    def __str__(self) -> str:
        return f"{self.service}.{self.operation}{self.of}"


def _arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{aws.REGION}:{A}:{resource}"


def _all(action: str, *resources: str, condition: Mapping[str, Any] | None = None) -> list[Statement]:
    return [allow(action, each, condition) for each in resources]


def _object(action: str, name: str = "lake/a.parquet") -> list[Statement]:
    return [allow(f"s3:{action}", f"arn:aws:s3:::rights/{name}")]


def _bucket(operation: str, action: str, **parameters: Any) -> Case:
    return Case(
        "s3", operation, {"Bucket": "rights"} | parameters, _all(f"s3:{action}", "arn:aws:s3:::rights")
    )


CATALOG, DATABASE, TABLE = (_arn("glue", each) for each in ("catalog", "database/d", "table/d/t"))
REGISTRY, TABLES = _arn("glue", "registry/r"), _arn("glue", "table/d/*")
OWN = {"StringEquals": {"aws:RequestTag/calve:deployment": "d"}}
LATER = {
    "ScheduleExpression": "rate(1 hour)",
    "FlexibleTimeWindow": {"Mode": "OFF"},
    "Target": {"Arn": _arn("lambda", "function:f"), "RoleArn": f"arn:aws:iam::{A}:role/later"},
}
ON_OBJECT = {"Bucket": "rights", "Key": "lake/a.parquet"}
VIA_S3 = {"StringEquals": {"kms:ViaService": f"s3.{aws.REGION}.amazonaws.com"}}


def _one(service: str, operation: str, action: str, resource: str, **parameters: Any) -> Case:
    return Case(service, operation, parameters, _all(f"{service}:{action}", resource))


def _detach(kind: str, holder: str) -> Case:
    parameters = {f"{kind}Name": holder.rpartition("/")[2], "PolicyArn": P}
    needs = _all(f"iam:Detach{kind}Policy", holder, condition={"ArnEquals": {"iam:PolicyARN": [P]}})
    return Case("iam", f"detach_{kind.lower()}_policy", parameters, needs)


def _formations() -> Iterator[Case]:
    """Lake Formation's requests know no resource."""
    to: dict[str, Any] = {
        "Principal": {"DataLakePrincipalIdentifier": R},
        "Resource": {"Database": {"Name": "d"}},
    }
    for operation, parameters in {
        "get_data_lake_settings": {},
        "list_permissions": {},
        "list_resources": {},
        "grant_permissions": to | {"Permissions": ["DESCRIBE"]},
        "revoke_permissions": to | {"Permissions": ["DESCRIBE"]},
    }.items():
        action = operation.title().replace("_", "")
        yield _one("lakeformation", operation, action, "*", **parameters)


GROUP = {"logGroupName": "/calve/d/main"}
LINKS, SECRET, QUEUE = _arn("dynamodb", "table/t"), _arn("secretsmanager", "secret:s*"), _arn("sqs", "q")
URL = f"http://localhost/{A}/q"
LOG, STACK = _arn("logs", "log-group:/calve/d/main:*"), _arn("cloudformation", "stack/d-lake/*")
R, P = (f"arn:aws:iam::{A}:{each}" for each in ("role/r", "policy/p"))
ITEM: dict[str, Any] = {"TableName": "t", "Key": {"k": {"S": "a"}}}


def s3_cases(key: str) -> list[Case]:
    """On a bucket `rights` encrypted by the key, with an object `lake/a.parquet` and a multipart upload `u`."""
    reads = [allow("kms:Decrypt", key, VIA_S3)]
    writes = [allow("kms:GenerateDataKey", key, VIA_S3)]
    version = ON_OBJECT | {"VersionId": "1"}
    part = ON_OBJECT | {"UploadId": "u"}
    deleted = {"Objects": [{"Key": "lake/a.parquet"}, {"Key": "lake/b.parquet"}]}
    several = [*_object("DeleteObject"), *_object("DeleteObject", "lake/b.parquet")]
    missing = [*_object("GetObject", "lake/none"), allow("s3:ListBucket", "arn:aws:s3:::rights")]
    return [
        Case("s3", "get_object", ON_OBJECT, [*_object("GetObject"), *reads]),
        Case("s3", "head_object", ON_OBJECT, _object("GetObject")),
        Case("s3", "get_object", {"Bucket": "rights", "Key": "lake/none"}, missing, " of none"),
        Case("s3", "get_object", version, [*_object("GetObjectVersion"), *reads], " of a version"),
        Case("s3", "put_object", ON_OBJECT | {"Body": b"x"}, [*_object("PutObject"), *writes]),
        Case("s3", "upload_part", part | {"PartNumber": 1}, [*_object("PutObject"), *writes, *reads]),
        Case("s3", "abort_multipart_upload", part, _object("AbortMultipartUpload")),
        Case("s3", "list_parts", part, _object("ListMultipartUploadParts")),
        Case("s3", "delete_objects", {"Bucket": "rights", "Delete": deleted}, several),
        Case("s3", "delete_object", version, _object("DeleteObjectVersion")),
        _bucket("list_multipart_uploads", "ListBucketMultipartUploads"),
        _bucket("list_object_versions", "ListBucketVersions"),
        _bucket("get_bucket_location", "GetBucketLocation"),
        _bucket("get_bucket_tagging", "GetBucketTagging"),
        _bucket("get_bucket_lifecycle_configuration", "GetLifecycleConfiguration"),
        _bucket("get_bucket_notification_configuration", "GetBucketNotification"),
        _bucket("put_bucket_tagging", "PutBucketTagging", Tagging={"TagSet": []}),
        _bucket("put_bucket_policy", "PutBucketPolicy", Policy=document()),
        _bucket("put_public_access_block", "PutBucketPublicAccessBlock", PublicAccessBlockConfiguration={}),
        _bucket(
            "put_bucket_lifecycle_configuration",
            "PutLifecycleConfiguration",
            LifecycleConfiguration={"Rules": []},
        ),
        _bucket(
            "put_bucket_notification_configuration", "PutBucketNotification", NotificationConfiguration={}
        ),
        _bucket(
            "put_bucket_encryption",
            "PutEncryptionConfiguration",
            ServerSideEncryptionConfiguration={"Rules": []},
        ),
        Case("s3", "create_bucket", {"Bucket": "rights2"}, _all("s3:CreateBucket", "arn:aws:s3:::rights2")),
        Case("s3", "delete_bucket", {"Bucket": "rights3"}, _all("s3:DeleteBucket", "arn:aws:s3:::rights3")),
        Case(
            "s3",
            "list_objects_v2",
            {"Bucket": "rights", "Prefix": "lake/"},
            _all("s3:ListBucket", "arn:aws:s3:::rights", condition={"StringLike": {"s3:prefix": ["lake/*"]}}),
        ),
    ]


def _table(operation: str, action: str, *resources: str, **parameters: Any) -> Case:
    return Case("glue", operation, parameters, _all(f"glue:{action}", *resources))


def _job(operation: str, action: str, **parameters: Any) -> Case:
    return _table(operation, action, _arn("glue", "job/j"), JobName="j", **parameters)


def _kms(operation: str, action: str, key: str, **parameters: Any) -> Case:
    return Case("kms", operation, {"KeyId": key} | parameters, _all(f"kms:{action}", key))


def kms_cases(key: str) -> list[Case]:
    tags = [{"TagKey": "calve:deployment", "TagValue": "d"}]
    made = [allow("kms:CreateKey", "*", OWN), allow("kms:TagResource", _arn("kms", "key/*"), OWN)]
    named = {"AliasName": "alias/rights-too", "TargetKeyId": key}
    alias = _arn("kms", "alias/rights-too")
    return [
        Case("kms", "create_key", {"Tags": tags}, made),
        Case("kms", "create_alias", named, _all("kms:CreateAlias", alias, key)),
        Case("kms", "describe_key", {"KeyId": "alias/rights"}, _all("kms:DescribeKey", key)),
        _kms("put_key_policy", "PutKeyPolicy", key, PolicyName="default", Policy=OF_THE_ACCOUNT),
        _kms("enable_key", "EnableKey", key),
        _kms("enable_key_rotation", "EnableKeyRotation", key),
        _kms("cancel_key_deletion", "CancelKeyDeletion", key),
        _kms("schedule_key_deletion", "ScheduleKeyDeletion", key, PendingWindowInDays=30),
        Case(
            "kms",
            "delete_alias",
            {"AliasName": "alias/rights"},
            _all("kms:DeleteAlias", _arn("kms", "alias/rights"), key),
        ),
    ]


OF_THE_ACCOUNT = document(
    {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{A}:root"}, "Action": "kms:*", "Resource": "*"}
)

CASES = [
    _table("get_database", "GetDatabase", CATALOG, DATABASE, Name="d"),
    _table("get_databases", "GetDatabases", CATALOG),
    _table("create_database", "CreateDatabase", CATALOG, DATABASE, DatabaseInput={"Name": "d"}),
    _table("delete_database", "DeleteDatabase", CATALOG, DATABASE, Name="d"),
    _table("get_table", "GetTable", CATALOG, DATABASE, TABLE, DatabaseName="d", Name="t"),
    _table("get_tables", "GetTables", CATALOG, DATABASE, TABLES, DatabaseName="d"),
    _table("create_table", "CreateTable", CATALOG, DATABASE, TABLE, DatabaseName="d", TableInput={"Name": "t"}),
    _table("update_table", "UpdateTable", CATALOG, DATABASE, TABLE, DatabaseName="d", TableInput={"Name": "t"}),
    _table("delete_table", "DeleteTable", CATALOG, DATABASE, TABLE, DatabaseName="d", Name="t"),
    _table("batch_delete_table", "BatchDeleteTable", CATALOG, DATABASE, TABLE, DatabaseName="d", TablesToDelete=["t"]),
    _table("get_partitions", "GetPartitions", CATALOG, DATABASE, TABLE, DatabaseName="d", TableName="t"),
    _table("get_connection", "GetConnection", CATALOG, _arn("glue", "connection/c"), Name="c"),
    _table("get_catalog", "GetCatalog", CATALOG, CatalogId=A),
    _table("get_schema", "GetSchema", REGISTRY, _arn("glue", "schema/r/s"), SchemaId={"RegistryName": "r", "SchemaName": "s"}),
    _table("list_schemas", "ListSchemas", REGISTRY, RegistryId={"RegistryName": "r"}),
    _table("get_schema_version", "GetSchemaVersion", "*", SchemaVersionId=KEY),
    _job("get_job", "GetJob"),
    _job("get_job_run", "GetJobRun", RunId="1"),
    _job("get_job_runs", "GetJobRuns"),
    _job("start_job_run", "StartJobRun"),
    _job("batch_stop_job_run", "BatchStopJobRun", JobRunIds=["1"]),
    _one("dynamodb", "get_item", "GetItem", LINKS, **ITEM),
    _one("dynamodb", "update_item", "UpdateItem", LINKS, **ITEM),
    _one("dynamodb", "delete_item", "DeleteItem", LINKS, **ITEM),
    _one("dynamodb", "put_item", "PutItem", LINKS, TableName="t", Item=ITEM["Key"]),
    _one("dynamodb", "scan", "Scan", LINKS, TableName="t"),
    _one("secretsmanager", "get_secret_value", "GetSecretValue", SECRET, SecretId="s"),
    _one("secretsmanager", "describe_secret", "DescribeSecret", SECRET, SecretId="s"),
    _one("secretsmanager", "list_secret_version_ids", "ListSecretVersionIds", SECRET, SecretId="s"),
    _one("secretsmanager", "put_secret_value", "PutSecretValue", SECRET, SecretId="s", SecretString="x"),
    _one("secretsmanager", "update_secret_version_stage", "UpdateSecretVersionStage", SECRET, SecretId="s", VersionStage="A"),
    _one("sqs", "receive_message", "ReceiveMessage", QUEUE, QueueUrl=URL),
    _one("sqs", "delete_message", "DeleteMessage", QUEUE, QueueUrl=URL, ReceiptHandle="h"),
    _one("sqs", "get_queue_attributes", "GetQueueAttributes", QUEUE, QueueUrl=URL),
    _one("logs", "create_log_stream", "CreateLogStream", LOG, **GROUP, logStreamName="s"),
    _one("logs", "put_log_events", "PutLogEvents", LOG, **GROUP, logStreamName="s", logEvents=[{"timestamp": 1, "message": "m"}]),
    _one("logs", "get_log_events", "GetLogEvents", LOG, **GROUP, logStreamName="s"),
    _one("logs", "filter_log_events", "FilterLogEvents", LOG, **GROUP),
    _one("logs", "describe_log_streams", "DescribeLogStreams", LOG, **GROUP),
    Case(
        "events",
        "put_events",
        {"Entries": [{"Source": "calve", "DetailType": "calve.export.failed", "Detail": "{}"}]},
        _all(
            "events:PutEvents",
            _arn("events", "event-bus/default"),
            condition={"StringEquals": {"events:source": "calve", "events:detail-type": ["calve.export.failed"]}},
        ),
    ),
    Case(
        "scheduler",
        "create_schedule",
        {"Name": "watchdog-1", "GroupName": "d-jobs"} | LATER,
        [
            allow("scheduler:CreateSchedule", _arn("scheduler", "schedule/d-jobs/watchdog-*")),
            allow(
                "iam:PassRole",
                f"arn:aws:iam::{A}:role/later",
                {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
            ),
        ],
    ),
    Case(
        "sesv2",
        "send_email",
        {
            "FromEmailAddress": "reports@rights.example.com",
            "Destination": {"ToAddresses": ["a@example.com"]},
            "Content": {"Simple": {"Subject": {"Data": "s"}, "Body": {"Text": {"Data": "t"}}}},
        },
        _all(
            "ses:SendEmail",
            _arn("ses", "identity/rights.example.com"),
            condition={"StringEquals": {"ses:FromAddress": ["reports@rights.example.com"]}},
        ),
    ),
    Case(
        "cloudwatch",
        "put_metric_data",
        {"Namespace": "Glue", "MetricData": [{"MetricName": "m", "Value": 1.0}]},
        _all("cloudwatch:PutMetricData", "*", condition={"StringEquals": {"cloudwatch:namespace": "Glue"}}),
    ),
    _one("cloudwatch", "list_metrics", "ListMetrics", "*"),
    _one("cloudwatch", "get_metric_data", "GetMetricData", "*", MetricDataQueries=[], StartTime=0, EndTime=1),
    _one("cloudwatch", "get_dashboard", "GetDashboard", f"arn:aws:cloudwatch::{A}:dashboard/d", DashboardName="d"),
    _one("cloudwatch", "describe_alarms", "DescribeAlarms", _arn("cloudwatch", "alarm:d-*"), AlarmNamePrefix="d-"),
    _one("cloudformation", "describe_stacks", "DescribeStacks", STACK, StackName="d-lake"),
    _one("cloudformation", "list_stack_resources", "ListStackResources", STACK, StackName="d-lake"),
    _one("lambda", "invoke", "InvokeFunction", _arn("lambda", "function:d-start"), FunctionName="d-start"),
    _one("sns", "publish", "Publish", _arn("sns", "t"), TopicArn=_arn("sns", "t"), Message="m"),
    _one("kms", "list_aliases", "ListAliases", "*"),
    _one("ssm", "get_parameter", "GetParameter", _arn("ssm", "parameter/d/t"), Name="/d/t"),
    _one("iam", "list_entities_for_policy", "ListEntitiesForPolicy", P, PolicyArn=P),
    _detach("Role", R),
    _detach("User", f"arn:aws:iam::{A}:user/u"),
    _detach("Group", f"arn:aws:iam::{A}:group/g"),
    *_formations(),
    _one("iam", "update_assume_role_policy", "UpdateAssumeRolePolicy", R, RoleName="r", PolicyDocument=document()),
]  # fmt: skip
