"""The emulator's IAM, where it would not judge the requests of the stacks' roles as AWS does.

ministack judges a role's request by one action, one resource and few condition keys. Here a request has all the checks that AWS
makes of it, in the services that calve uses. `ministack_plus.py` runs this file. Each new verdict is a line of `RIGHTS`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ministack import app
from ministack.core import iam_actions, iam_evaluator, lambda_runtime
from ministack.services import (
    eventbridge,
    iam,
    kms,
    lambda_svc,
    s3,
    secretsmanager,
    ses,
    sns,
    sqs,
    sts,
    tagging,
)

Json = dict[str, Any]
RIGHTS = Path("rights.jsonl")
TAG_DELAY_S = 2.0
"""How long the tags of a new key count for nothing; on AWS up to five minutes."""

_extract_resource_arn = iam_actions.extract_resource_arn
_enforce = iam_evaluator.enforce
_evaluate_trust_policy = iam_evaluator.evaluate_trust_policy
_execution_credentials = lambda_runtime.execution_credentials
_invoke_target = eventbridge._invoke_target
_resource_tags = tagging.resource_tags


@dataclass(frozen=True)
class Check:
    """One question to the policies. keys: condition keys of the request."""

    action: str
    resource: str
    keys: Json


@dataclass(frozen=True)
class Asked:
    """A request. fields: members of its JSON, or its query parameters."""

    service: str
    method: str
    path: str
    headers: Json
    fields: Json
    region: str
    account: str

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"


_asked: ContextVar[Asked | None] = ContextVar("asked", default=None)
_judged: set[tuple[str, str, str, str]] = set()


def extract_resource_arn(*request: Any) -> str:
    """Remember the request for `enforce`, which gets only its action and resource."""
    service, method, path, headers, body, params, region, account = request
    fields = {name: each[0] if isinstance(each, list) and each else each for name, each in params.items()}
    if body[:1] == b"{" and service != "s3":
        fields |= json.loads(body)
    region, account = region or "us-east-1", account or sts.get_account_id()
    _asked.set(Asked(service, method, path, headers, fields, region, account))
    return str(_extract_resource_arn(*request))


def enforce(
    access_key_id: str,
    iam_action: str,
    service: str,
    region: str,
    resource_arn: str = "*",
    service_context: Json | None = None,
) -> Any:
    """Make every check of a role's request; return the first refusal."""
    asked = _asked.get()
    checks = [Check(iam_action, resource_arn, service_context or {})]
    if asked and service.startswith(asked.service) and access_key_id in sts._sessions:
        checks = [each for first in checks for each in CHECKS.get(service, only)(asked, first)]
    for each in checks:
        owner = each.action.partition(":")[0] if len(checks) > 1 else service
        refusal = _enforce(access_key_id, each.action, owner, region, each.resource, each.keys)
        if access_key_id in sts._sessions:
            role = iam_evaluator._role_name_from_assumed_arn(sts._sessions[access_key_id]["Arn"])
            note(role, each, "refused" if refusal else "allowed")
        if refusal:
            return refusal
    return None


def note(who: str, check: Check, verdict: str) -> None:
    line = (who, check.action, check.resource, verdict)
    if line not in _judged:
        _judged.add(line)
        with RIGHTS.open("a") as file:
            file.write(json.dumps(line) + "\n")


def only(_asked: Asked, first: Check) -> Iterator[Check]:
    yield first


def of_glue(asked: Asked, first: Check) -> Iterator[Check]:
    """A request for a table needs the right to it, to its database and to the catalog."""
    fields, name = asked.fields, first.action.removeprefix("glue:")
    if "JobName" in fields:
        yield replace(first, resource=asked.arn("glue", f"job/{fields['JobName']}"))
        return
    if "Schema" in name:
        yield from of_schemas(asked, first)
        return
    database = fields.get("DatabaseName") or fields.get("DatabaseInput", {}).get("Name")
    table = fields.get("TableInput", {}).get("Name") or fields.get("TableName") or fields.get("Name")
    yield replace(first, resource=asked.arn("glue", "catalog"))
    if name == "GetConnection":
        yield replace(first, resource=asked.arn("glue", f"connection/{table}"))
    if name in ("GetDatabase", "UpdateDatabase", "DeleteDatabase"):
        database, table = fields["Name"], None
    if database:
        yield replace(first, resource=asked.arn("glue", f"database/{database}"))
    if database and "Database" not in name:
        for each in fields.get("TablesToDelete", [table or "*"]):
            yield replace(first, resource=asked.arn("glue", f"table/{database}/{each}"))


def of_schemas(asked: Asked, first: Check) -> Iterator[Check]:
    """By its id a version is of no registry that a policy could name."""
    schema = asked.fields.get("SchemaId") or asked.fields.get("RegistryId") or {}
    if not schema:
        yield replace(first, resource="*")
        return
    registry = schema.get("RegistryName", "default-registry")
    yield replace(first, resource=asked.arn("glue", f"registry/{registry}"))
    if "SchemaName" in schema:
        yield replace(first, resource=asked.arn("glue", f"schema/{registry}/{schema['SchemaName']}"))


def of_scheduler(asked: Asked, first: Check) -> Iterator[Check]:
    """A schedule belongs to its group. The role that makes it passes another role."""
    parts = asked.path.strip("/").split("/")
    if parts[0] != "schedules" or len(parts) == 1:
        yield first
        return
    group = asked.fields.get("GroupName") or asked.fields.get("groupName") or "default"
    yield replace(first, resource=asked.arn("scheduler", f"schedule/{group}/{parts[1]}"))
    if "Target" in asked.fields:
        to = {"iam:PassedToService": "scheduler.amazonaws.com"}
        yield Check("iam:PassRole", asked.fields["Target"]["RoleArn"], to)


def of_events(asked: Asked, first: Check) -> Iterator[Check]:
    for entry in asked.fields.get("Entries", [{}]):
        keys = {"events:source": entry.get("Source"), "events:detail-type": entry.get("DetailType")}
        bus = entry.get("EventBusName", "default")
        if first.action == "events:PutEvents" and not bus.startswith("arn:"):
            yield Check(first.action, asked.arn("events", f"event-bus/{bus}"), keys)
        else:
            yield replace(first, keys=first.keys | keys)


def of_metrics(asked: Asked, first: Check) -> Iterator[Check]:
    fields, action = asked.fields, first.action.removeprefix("cloudwatch:")
    if action == "GetDashboard":
        name = fields.get("DashboardName")
        yield replace(first, resource=f"arn:aws:cloudwatch::{asked.account}:dashboard/{name}")
    elif action == "DescribeAlarms":
        yield replace(first, resource=asked.arn("cloudwatch", f"alarm:{fields.get('AlarmNamePrefix', '')}*"))
    else:
        yield replace(first, keys=first.keys | {"cloudwatch:namespace": fields.get("Namespace")})


def of_mails(asked: Asked, first: Check) -> Iterator[Check]:
    """SES looks at the identity of the address, or of its domain where the address has none."""
    sender = asked.fields.get("FromEmailAddress")
    if not sender:
        yield first
        return
    keys = first.keys | {"ses:FromAddress": sender}
    known = sender if sender in ses._identities else sender.rpartition("@")[2]
    yield Check(first.action, asked.arn("ses", f"identity/{known}"), keys)


def of_logs(asked: Asked, first: Check) -> Iterator[Check]:
    group = asked.fields.get("logGroupName")
    if group:
        stream = asked.fields.get("logStreamName", "")
        first = replace(first, resource=asked.arn("logs", f"log-group:{group}:log-stream:{stream}"))
    yield first


def of_keys(asked: Asked, first: Check) -> Iterator[Check]:
    """An alias stands for its key, except where the alias itself is made or deleted."""
    alias, key = asked.fields.get("AliasName"), asked.fields.get("TargetKeyId") or asked.fields.get("KeyId")
    if alias:
        yield replace(first, resource=asked.arn("kms", alias))
        key = key or kms._aliases.get(asked.arn("kms", alias))
    record = kms._resolve_key(key) if key else None
    if record:
        yield replace(first, resource=record["Arn"])
    elif not key and not alias:
        yield first
        if asked.fields.get("Tags"):
            yield Check("kms:TagResource", asked.arn("kms", "key/new"), first.keys)


def of_secrets(asked: Asked, first: Check) -> Iterator[Check]:
    """A secret with a key of its own is decrypted for its reader, and encrypted for its writer."""
    yield first
    uses = {"GetSecretValue": ("Decrypt",), "PutSecretValue": ("Decrypt", "GenerateDataKey")}
    _, secret = secretsmanager._resolve(asked.fields.get("SecretId"))
    if secret and secret.get("KmsKeyId"):
        for use in uses.get(first.action.removeprefix("secretsmanager:"), ()):
            yield of_key(asked, secret["KmsKeyId"], use, "secretsmanager")


def of_objects(asked: Asked, first: Check) -> Iterator[Check]:
    """An encrypted object needs its key; only who may list a bucket learns that it lacks an object."""
    yield first
    bucket, _, name = first.resource.removeprefix("arn:aws:s3:::").partition("/")
    record = s3._buckets.get(bucket)
    if not record or not name:
        return
    found = record["objects"].get(name)
    if first.action == "s3:GetObject" and found is None:
        yield Check("s3:ListBucket", f"arn:aws:s3:::{bucket}", {})
    elif first.action in ("s3:GetObject", "s3:GetObjectVersion") and asked.method != "HEAD":
        if key := s3._stored_sse_headers(found or {}).get(KEY_HEADER):
            yield of_key(asked, key, "Decrypt", "s3")
    elif first.action == "s3:PutObject" and (
        key := asked.headers.get(KEY_HEADER) or s3._bucket_default_sse_headers(bucket).get(KEY_HEADER)
    ):
        yield of_key(asked, key, "GenerateDataKey", "s3")
        if {"uploadId", "uploads"} & asked.fields.keys():
            yield of_key(asked, key, "Decrypt", "s3")


def of_identities(asked: Asked, first: Check) -> Iterator[Check]:
    """To take a policy from a holder is a right to the holder; the policy is a condition."""
    if group := asked.fields.get("GroupName"):
        first = replace(first, resource=f"arn:aws:iam::{asked.account}:group/{group}")
    policy = asked.fields.get("PolicyArn")
    yield replace(first, keys=first.keys | ({"iam:PolicyARN": policy} if policy else {}))


KEY_HEADER = "x-amz-server-side-encryption-aws-kms-key-id"


def of_key(asked: Asked, key: str, use: str, via: str) -> Check:
    record = kms._resolve_key(key)
    keys = {"kms:ViaService": f"{via}.{asked.region}.amazonaws.com", "kms:CallerAccount": asked.account}
    return Check(f"kms:{use}", record["Arn"] if record else key, keys)


CHECKS: dict[str, Callable[[Asked, Check], Iterator[Check]]] = {
    "glue": of_glue,
    "scheduler": of_scheduler,
    "events": of_events,
    "monitoring": of_metrics,
    "sesv2": of_mails,
    "logs": of_logs,
    "kms": of_keys,
    "secretsmanager": of_secrets,
    "s3": of_objects,
    "iam": of_identities,
}


def resource_tags(arn: str) -> Any:
    """The tags of a resource; a new key has none yet."""
    key = kms._resolve_key(arn) if ":kms:" in arn else None
    return {} if key and time.time() < key["CreationDate"] + TAG_DELAY_S else _resource_tags(arn)


def trusts(role_arn: str, service: str) -> bool:
    """Whether the role exists and lets the service act as it."""
    role = iam._roles.get(role_arn.rpartition("/")[2]) or {}
    document = role.get("AssumeRolePolicyDocument") or "{}"
    statements = (document if isinstance(document, dict) else json.loads(document)).get("Statement", [])
    return any(
        each["Effect"] == "Allow" and iam_evaluator._service_principal_matches(each["Principal"], service)
        for each in statements
    )


def evaluate_trust_policy(document: Any, caller: str, context: Any = None) -> bool:
    """The key of the stack assumes a role as the service by whose name it calls its session."""
    session = (context.service_context.get("sts:rolesessionname") or "") if context else ""
    if caller.endswith(":root") and session.endswith(".amazonaws.com"):
        return trusts(context.resource_arn, session)
    return bool(_evaluate_trust_policy(document, caller, context))


def execution_credentials(config: Json) -> dict[str, str]:
    if not trusts(config["Role"], "lambda.amazonaws.com"):
        raise PermissionError("The role defined for the function cannot be assumed by Lambda.")
    made: dict[str, str] = _execution_credentials(config)
    return made


def invoke_target(target: Json, event: Json, rule: Json, *rest: Any) -> None:
    """Invoke it where the schedule's role may, or the function's own policy lets the rule."""
    arn, account = target["Arn"], sts.get_account_id()
    check = Check(INVOKES.get(arn.split(":")[2], "?"), arn, {"aws:sourcearn": rule.get("Arn")})
    if event.get("Source") == "aws.scheduler":
        who = target["RoleArn"].rpartition("/")[2]
        context = iam_evaluator.EvalContext(target["RoleArn"], "AssumedRole", account, check.action, arn, "")
        allowed = trusts(target["RoleArn"], "scheduler.amazonaws.com") and permits(
            iam_evaluator.evaluate(context, iam_evaluator._gather_role_policies(who, account))
        )
    elif check.action == "lambda:InvokeFunction":
        who, (policy, _) = "events.amazonaws.com", lambda_svc.function_policy_for_arn(arn) or ("", "")
        context = iam_evaluator.EvalContext(who, "Service", account, check.action, arn, "")
        context.service_context = check.keys | {"aws:sourceaccount": account}
        allowed = permits(iam_evaluator.evaluate_resource_policy(policy, context, service=who))
    else:
        who = "events.amazonaws.com"
        allows = sqs.queue_policy_allows if check.action.startswith("sqs:") else sns.topic_policy_allows
        allowed = allows(arn, who, rule.get("Arn"), account)
    note(who, check, "allowed" if allowed else "refused")
    if allowed:
        _invoke_target(target, event, rule, *rest)


def permits(result: Any) -> bool:
    return bool(result.decision == "Allow")


INVOKES = {"lambda": "lambda:InvokeFunction", "sqs": "sqs:SendMessage", "sns": "sns:Publish"}

iam_actions.extract_resource_arn = extract_resource_arn
iam_evaluator.enforce = enforce
iam_evaluator.evaluate_trust_policy = evaluate_trust_policy
lambda_runtime.execution_credentials = lambda_svc.execution_credentials = execution_credentials
tagging.resource_tags = resource_tags
eventbridge._invoke_target = invoke_target
app.pin_request_origin = lambda address, _: iam_evaluator.pin_request_origin(address, secure_transport=True)
"""Loopback stands for TLS, which the policies of buckets and topics demand."""
