"""A destroy takes the deployment's policies from their holders, and no other policy from anybody."""

import json

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from calve.errors import CalveError
from lambdas.lake.attachments import detach, handle
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.test_lake_removal import Stacks, request

ANY = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
NOTHING = json.dumps({"Version": "2012-10-17", "Statement": []})


@pytest.fixture
def iam(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        made = boto3.client("iam", "us-east-1")
        made.create_role(RoleName="analyst", AssumeRolePolicyDocument=NOTHING)
        made.create_user(UserName="ann")
        made.create_group(GroupName="analysts")
        yield made


@pytest.fixture
def policies(iam):
    """Two of the deployment and one of somebody else, each attached to all."""
    arns = []
    for name in ("readers", "operators", "theirs"):
        arns.append(
            iam.create_policy(
                PolicyName=name, PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [ANY]})
            )["Policy"]["Arn"]
        )
        iam.attach_role_policy(RoleName="analyst", PolicyArn=arns[-1])
        iam.attach_user_policy(UserName="ann", PolicyArn=arns[-1])
        iam.attach_group_policy(GroupName="analysts", PolicyArn=arns[-1])
    return arns


def attached(iam, policy):
    return iam.get_policy(PolicyArn=policy)["Policy"]["AttachmentCount"]


def test_policies_are_taken_from_roles_users_and_groups_so_that_they_can_be_deleted(iam, policies):
    detach(policies[:2], iam)
    detach(policies[:2], iam)
    assert [attached(iam, each) for each in policies] == [0, 0, 3]
    for each in policies[:2]:
        iam.delete_policy(PolicyArn=each)


def test_a_protected_role_is_named_and_the_others_are_done(iam, policies):
    def refuse(model, **_):
        raise ClientError({"Error": {"Code": "UnmodifiableEntity", "Message": "protected"}}, model.name)

    iam.meta.events.register("before-call.iam.DetachRolePolicy", refuse)
    with pytest.raises(CalveError, match="readers from analyst, operators from analyst") as caught:
        detach(policies[:2], iam)
    assert "Identity Center" in str(caught.value)
    assert [attached(iam, each) for each in policies] == [1, 1, 3]


@pytest.mark.parametrize(
    ("status", "left"), [("DELETE_IN_PROGRESS", 0), ("ROLLBACK_IN_PROGRESS", 3), ("UPDATE_IN_PROGRESS", 3)]
)
def test_only_a_destroy_takes_them(iam, policies, monkeypatch, status, left):
    answers = []
    clients = {"iam": iam, "cloudformation": Stacks(status)}
    monkeypatch.setattr("boto3.client", clients.get)
    monkeypatch.setattr("lambdas.custom_resource._deliver", lambda _, answer: answers.append(answer))
    properties = {"Deployment": "trading", "Attached": ",".join(policies[:2])}
    for kind in ("Create", "Delete"):
        handle(request(kind) | {"ResourceProperties": properties}, Context())
    assert [each["Status"] for each in answers] == ["SUCCESS"] * 2
    assert attached(iam, policies[0]) == left
