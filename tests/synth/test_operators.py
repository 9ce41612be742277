"""What the policies of people who run a deployment let them do, and what not."""

import json
from fnmatch import fnmatchcase

import pytest

from tests.operator_calls import ARN, ASKING, BUCKET, METADATA_ENDS, STATUS, TOLD
from tests.synth.conftest import text
from tests.synth.test_lake import listed, managed

LARGEST = 6_144
"""Characters of a managed policy, without white space."""


@pytest.fixture
def read(synthesized):
    return managed(synthesized, "trading-lake", "trading-operators-read-")


@pytest.fixture
def act(synthesized):
    return managed(synthesized, "trading-lake", "trading-operators-")


def allows(policy, action, resource):
    service = action.partition(":")[0]
    arn = f"{BUCKET if service == 's3' else ARN.format(service=service)}{resource}"
    return any(
        action in listed(statement["Action"])
        and any(fnmatchcase(arn, text(each)) for each in listed(statement["Resource"]))
        for statement in policy["Statement"]
    )


def test_an_operator_may_call_what_the_commands_call(read, act):
    for action, resource in STATUS.items():
        assert allows(read, action, resource), action
    assert allows(read, "s3:GetObject", TOLD)
    assert not allows(act, "s3:PutObject", TOLD)
    assert allows(read, "cloudformation:DescribeStacks", "stack/trading-lake/4fd0")
    for end in METADATA_ENDS:
        assert allows(read, "s3:GetObject", f"trading/trades/metadata/a{end}".replace("a/metadata/", "")), end
    for action, resource in ASKING.items():
        assert allows(act, action, resource), action
        assert not allows(read, action, resource), action


def test_who_looks_changes_nothing(read):
    verbs = ("Get", "List", "Describe", "Filter", "Scan", "Decrypt")
    for statement in read["Statement"]:
        if statement["Action"] == "lambda:InvokeFunction":  # the doctor only looks: test_doctor.py
            assert text(statement["Resource"]).endswith(":function:trading-ingest-Doctor*")
            continue
        for action in listed(statement["Action"]) if statement["Effect"] == "Allow" else ():
            assert action.partition(":")[2].startswith(verbs), action
            assert action not in ("secretsmanager:GetSecretValue", "dynamodb:PutItem")


def test_both_policies_are_outputs_and_small_enough_for_iam(synthesized, read, act):
    outputs = synthesized.templates["trading-lake"]["Outputs"]
    assert {"OperatorsReadPolicy", "OperatorsPolicy"} <= set(outputs)
    for policy in (read, act):
        assert len(json.dumps(policy, separators=(",", ":"))) < LARGEST
