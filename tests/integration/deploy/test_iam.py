"""The emulator judges a role as AWS does: real signed requests, with each right that they need and without it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cli import conditions, lake
from cli.account import Account
from cli.embedded import aws
from cli.embedded.layout import Layout
from cli.embedded.stack import Stack
from tests.integration.support import rights
from tests.integration.support.engine import until
from tests.integration.support.exporting import BUCKET, JOB, NAME, Deployment
from tests.integration.support.rights import CASES, EVERYTHING, REFUSALS, Case, allow, document
from tests.standins.unused_rights import unused


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    """The key of a new bucket `rights` with an object, named by an alias."""
    kms, s3 = (aws.client(each, stack.aws_endpoint) for each in ("kms", "s3"))
    made = kms.create_key(Policy=rights.OF_THE_ACCOUNT)["KeyMetadata"]
    kms.create_alias(AliasName="alias/rights", TargetKeyId=made["KeyId"])
    s3.create_bucket(Bucket="rights")  # again on a stack that stays up
    encryption = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": made["Arn"]}
    rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": encryption}]}
    s3.put_bucket_encryption(Bucket="rights", ServerSideEncryptionConfiguration=rules)
    s3.put_object(Bucket="rights", Key="lake/a.parquet", Body=b"x")
    return str(made["Arn"])


def refused(stack: Stack, role: str, case: Case) -> bool:
    """Whether the request of the role is refused; any other error comes after that."""
    try:
        getattr(rights.client(stack, role, case.service), case.operation)(**case.parameters)
    except ClientError as error:
        return error.response["Error"]["Code"] in REFUSALS
    return False


def check(stack: Stack, case: Case) -> None:
    for missing in range(len(case.needs)):
        rest = (each for place, each in enumerate(case.needs) if place != missing)
        assert refused(stack, rights.role(stack, *rest), case), case.needs[missing]
    assert not refused(stack, rights.role(stack, *case.needs), case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_request_needs_each_of_its_rights_and_no_other(stack: Stack, case: Case) -> None:
    check(stack, case)


def test_an_object_needs_the_rights_to_its_bucket_and_its_key(stack: Stack, key: str) -> None:
    for case in (*rights.s3_cases(key), *rights.kms_cases(key)):
        check(stack, case)


OF_A_CONDITION = re.compile(r'(?<=: )"(calve|Glue|scheduler\.amazonaws\.com)"|(?<=\[)"(reports@|arn:)[^"]+"')


def test_a_condition_on_another_value_gives_no_right(stack: Stack) -> None:
    conditioned = [each for each in CASES if any("Condition" in need for need in each.needs)]
    assert len(conditioned) == 7
    for case in conditioned:
        others = json.loads(OF_A_CONDITION.sub('"other"', json.dumps(case.needs)))
        assert refused(stack, rights.role(stack, *others), case), str(case)


def test_a_denial_and_a_boundary_take_a_right_away(stack: Stack) -> None:
    case = next(each for each in CASES if str(each) == "glue.get_job")
    denial = dict(case.needs[0]) | {"Effect": "Deny"}
    assert refused(stack, rights.role(stack, EVERYTHING, denial), case)
    iam = aws.client("iam", stack.aws_endpoint)
    for limit, closed in ((allow("s3:*", "*"), True), (EVERYTHING, False)):
        name = f"boundary-{uuid.uuid4().hex[:8]}"
        boundary = iam.create_policy(PolicyName=name, PolicyDocument=document(limit))["Policy"]["Arn"]
        assert refused(stack, rights.role(stack, EVERYTHING, boundary=boundary), case) is closed


def test_a_new_keys_tag_gives_no_right_at_once(stack: Stack) -> None:
    tag = {"StringEquals": {"aws:ResourceTag/calve:deployment": "d"}}
    kms = aws.client("kms", stack.aws_endpoint)
    tags = [{"TagKey": "calve:deployment", "TagValue": "d"}]
    own = rights.role(stack, allow("kms:EnableKeyRotation", "*", tag))
    made = kms.create_key(Policy=rights.OF_THE_ACCOUNT, Tags=tags)["KeyMetadata"]["KeyId"]
    assert refused(stack, own, Case("kms", "enable_key_rotation", {"KeyId": made}, ()))
    aws.client("kms", stack.aws_endpoint).enable_key_rotation(KeyId=made)


def test_a_role_acts_for_nobody_whom_it_does_not_trust(stack: Stack) -> None:
    role = rights.role(stack, EVERYTHING, service="glue.amazonaws.com")
    aws.acting_as(role, "glue.amazonaws.com", stack.aws_endpoint)
    with pytest.raises(ClientError, match="AccessDenied"):
        aws.acting_as(role, "lambda.amazonaws.com", stack.aws_endpoint)


def test_a_request_with_a_made_up_key_is_refused(stack: Stack) -> None:
    stranger = aws.client("glue", stack.aws_endpoint, "ASIAAAAAAAAAAAAAAAAA", "secret", "token")
    with pytest.raises(ClientError, match="UnrecognizedClient"):
        stranger.get_job(JobName="j")


@pytest.mark.long
def test_an_operator_sees_the_state_by_the_policies_for_operators(
    weekly: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    iam, operator = weekly.client("iam"), rights.role(weekly.stack)
    pages = iam.get_paginator("list_policies").paginate(Scope="Local")
    policies = {each["PolicyName"]: each["Arn"] for page in pages for each in page["Policies"]}
    read = policies[f"{NAME}-operators-read-{aws.REGION}"]
    iam.attach_role_policy(RoleName=operator.rpartition("/")[2], PolicyArn=read)
    key = aws.acting_as(operator, "lambda.amazonaws.com", weekly.stack.aws_endpoint)
    names = ("client.access-key-id", "client.secret-access-key", "client.session-token")
    monkeypatch.setattr(lake, "credentials", lambda _: dict(zip(names, key.values(), strict=True)))
    monkeypatch.setattr(Account, "client", lambda _, service: rights.client(weekly.stack, operator, service))
    conditions._s3.cache_clear()
    seen = {
        each["topic"]: each for each in replace(weekly, config=weekly.app.config).calve("status")["tables"]
    }
    conditions._s3.cache_clear()
    assert seen[weekly.trades.topic]["rows"] == 4001


def test_a_right_that_nobody_used_is_listed(stack: Stack) -> None:
    case = next(each for each in CASES if str(each) == "glue.get_job")
    idle = allow("glue:GetJobRuns", case.needs[0]["Resource"])
    role = rights.role(stack, *case.needs, idle)
    assert not refused(stack, role, case)
    lines = (Layout(stack.root).run / "aws" / "rights.jsonl").read_text().splitlines()
    name = role.rpartition("/")[2]
    found = unused(aws.client("iam", stack.aws_endpoint), name, map(json.loads, lines))
    assert list(found) == [(name, idle["Action"], idle["Resource"])]


@contextmanager
def without(deployment: Deployment, part: str, action: str) -> Iterator[None]:
    """A deployed role without one of its rights."""
    iam = deployment.client("iam")
    pages = iam.get_paginator("list_roles").paginate()
    (name,) = (r["RoleName"] for page in pages for r in page["Roles"] if r["RoleName"].startswith(part))
    denial: Mapping[str, Any] = {"Effect": "Deny", "Action": action, "Resource": "*"}
    iam.put_role_policy(RoleName=name, PolicyName="without", PolicyDocument=document(denial))
    try:
        yield
    finally:
        iam.delete_role_policy(RoleName=name, PolicyName="without")


@pytest.mark.long
def test_a_deployed_function_without_one_of_its_rights_fails(weekly: Deployment) -> None:
    asked = json.dumps({"job": JOB})
    with without(weekly, f"{NAME}-ingest-ControlStartRole", "glue:StartJobRun"):
        answer = weekly.client("lambda").invoke(FunctionName=f"{NAME}-start", Payload=asked)
        assert "AccessDenied" in answer["Payload"].read().decode()
    answer = weekly.client("lambda").invoke(FunctionName=f"{NAME}-start", Payload=asked)
    assert "FunctionError" not in answer


def test_a_deployed_job_without_one_of_its_rights_says_so(weekly: Deployment) -> None:
    report = {"Bucket": BUCKET, "Key": f"_calve/status/{NAME}/main.json"}
    s3, command = weekly.client("s3"), [sys.executable, "-m", "cli.main", "run-job", JOB, "--memory", "1g"]
    with (
        without(weekly, f"{NAME}-ingest-mainRole", "glue:GetTable"),
        subprocess.Popen(command, cwd=weekly.stack.root, stdout=subprocess.DEVNULL) as job,
    ):
        until(lambda: b"glue:GetTable" in s3.get_object(**report)["Body"].read(), seconds=180)
        job.terminate()
