import json

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from calve.errors import ConfigError
from lambdas.function import from_properties
from lambdas.lake.adoption import TAGS_S, Clients, Lake, adopt, keep_key
from tests.unit.lambdas.job_control.world import Clock

ACCOUNT = "123456789012"
PROPERTIES = {
    "Deployment": "trading",
    "Bucket": "trading-lake",
    "BucketPolicy": json.dumps({"Version": "2012-10-17", "Statement": []}),
    "Expiring": json.dumps({"_calve/staging/": 7, "exports/weekly/": 90}),
    "KeyAlias": "alias/trading-lake",
    "KeyPolicy": json.dumps({"Version": "2012-10-17", "Statement": []}),
    "KeyArn": "",
    "Database": "trading",
    "Location": "s3://trading-lake/trading",
    "NotifyBucket": "trading-lake",
}
LAKE = from_properties(Lake, PROPERTIES)


@pytest.fixture
def aws(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        s3, kms, glue = (boto3.client(name, "eu-central-1") for name in ("s3", "kms", "glue"))
        yield Clients(s3, kms, glue, "eu-central-1", ACCOUNT)


@pytest.fixture
def notified(aws):
    """What was put as a notification configuration: moto does not give an empty EventBridge configuration back."""
    seen = []
    aws.s3.meta.events.register(
        "provide-client-params.s3.PutBucketNotificationConfiguration",
        lambda params, **_: seen.append(params["NotificationConfiguration"]),
    )
    return seen


def test_a_lake_is_made_encrypted_closed_and_with_a_lifecycle(aws, notified):
    key = adopt(LAKE, aws)["KeyArn"]
    rule = aws.s3.get_bucket_encryption(Bucket=LAKE.bucket)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    assert rule["BucketKeyEnabled"]
    closed = aws.s3.get_public_access_block(Bucket=LAKE.bucket)["PublicAccessBlockConfiguration"]
    assert all(closed.values())
    assert len(closed) == 4
    assert expiring(aws, LAKE.bucket) == {
        ("calve-trading-_calve/staging/", "_calve/staging/", 7),
        ("calve-trading-exports/weekly/", "exports/weekly/", 90),
    }
    assert json.loads(aws.s3.get_bucket_policy(Bucket=LAKE.bucket)["Policy"]) == json.loads(
        LAKE.bucket_policy
    )
    assert notified == [{"EventBridgeConfiguration": {}}]
    assert aws.kms.get_key_rotation_status(KeyId=key)["KeyRotationEnabled"]
    assert aws.glue.get_database(Name="trading")["Database"]["LocationUri"] == "s3://trading-lake/trading"


def test_a_kept_lake_is_adopted_with_its_data_and_its_key(aws):
    key = adopt(LAKE, aws)
    aws.s3.put_object(Bucket=LAKE.bucket, Key="trading/stock_trades/file", Body=b"rows")
    aws.glue.create_table(DatabaseName="trading", TableInput={"Name": "stock_trades"})
    assert adopt(LAKE, aws) == key
    assert aws.s3.get_object(Bucket=LAKE.bucket, Key="trading/stock_trades/file")["Body"].read() == b"rows"
    assert len(aws.glue.get_tables(DatabaseName="trading")["TableList"]) == 1
    assert len(aws.kms.list_keys()["Keys"]) == 1


def test_a_key_whose_deletion_was_scheduled_comes_back(aws):
    key = adopt(LAKE, aws)["KeyArn"]
    aws.kms.schedule_key_deletion(KeyId=key.rpartition("/")[2])
    adopt(LAKE, aws)
    assert aws.kms.describe_key(KeyId=LAKE.key_alias)["KeyMetadata"]["KeyState"] == "Enabled"


def test_a_new_key_is_set_up_although_kms_sees_its_tags_late(aws):
    clock, late = Clock(), Late(aws.kms)
    clock.at(300, late.over)
    key = keep_key(aws.kms, LAKE.key_alias, "trading", LAKE.key_policy, clock=clock)
    assert clock.now == 300
    assert aws.kms.get_key_rotation_status(KeyId=key)["KeyRotationEnabled"]
    assert aws.kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"] == LAKE.key_policy
    assert len(aws.kms.list_keys()["Keys"]) == 1


def test_a_key_that_may_never_be_changed_is_the_reason_after_six_minutes_and_is_found_by_the_next_deploy(aws):
    clock, late = Clock(), Late(aws.kms)
    with pytest.raises(ClientError, match="AccessDenied"):
        keep_key(aws.kms, LAKE.key_alias, "trading", LAKE.key_policy, clock=clock)
    assert clock.now == TAGS_S
    late.over()
    keep_key(aws.kms, LAKE.key_alias, "trading", LAKE.key_policy, clock=clock)
    assert len(aws.kms.list_keys()["Keys"]) == 1


class Late:
    """KMS as it judges a condition on tags: an alias without a key has none, and those of a new key count when it is `over`."""

    _acts = ("DescribeKey", "PutKeyPolicy", "EnableKeyRotation", "EnableKey")

    def __init__(self, kms):
        self._events = kms.meta.events
        for act in self._acts:
            self._events.register(f"before-call.kms.{act}", self._refuse)
        self._events.register("before-call.kms.CreateKey", _without_a_policy)

    def over(self):
        for act in self._acts:
            self._events.unregister(f"before-call.kms.{act}", self._refuse)

    def _refuse(self, model, **_):
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "tags"}}, model.name)


def _without_a_policy(params, **_):
    assert "Policy" not in json.loads(params["body"])


@pytest.mark.parametrize("tags", [[], [{"Key": "calve:deployment", "Value": "other"}]])
def test_a_bucket_of_that_name_that_is_not_ours_is_left_as_it_is(aws, tags):
    aws.s3.create_bucket(Bucket=LAKE.bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    if tags:
        aws.s3.put_bucket_tagging(Bucket=LAKE.bucket, Tagging={"TagSet": tags})
    with pytest.raises(ConfigError, match="is not trading"):
        adopt(LAKE, aws)
    with pytest.raises(aws.s3.exceptions.ClientError, match="NoSuchBucketPolicy"):
        aws.s3.get_bucket_policy(Bucket=LAKE.bucket)


def expiring(aws, bucket):
    rules = aws.s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    return {(each["ID"], each["Filter"]["Prefix"], each["Expiration"]["Days"]) for each in rules}


def test_files_of_an_export_that_is_gone_still_expire(aws):
    adopt(LAKE, aws)
    adopt(
        from_properties(Lake, PROPERTIES | {"Expiring": '{"exports/daily/": 5, "_calve/staging/": 8}'}), aws
    )
    assert {(prefix, days) for _, prefix, days in expiring(aws, LAKE.bucket)} == {
        ("_calve/staging/", 8),
        ("exports/weekly/", 90),
        ("exports/daily/", 5),
    }


def test_parts_of_uploads_and_old_versions_of_expired_files_go_too(aws):
    adopt(LAKE, aws)
    for rule in aws.s3.get_bucket_lifecycle_configuration(Bucket=LAKE.bucket)["Rules"]:
        assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
        assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}


def test_lifecycle_rules_of_others_stay_also_those_of_the_old_form(aws):
    adopt(LAKE, aws)
    theirs = {"ID": "theirs", "Status": "Enabled", "Prefix": "logs/", "Expiration": {"Days": 3}}
    aws.s3.put_bucket_lifecycle_configuration(Bucket=LAKE.bucket, LifecycleConfiguration={"Rules": [theirs]})
    adopt(LAKE, aws)
    assert ("theirs", "logs/", 3) in expiring(aws, LAKE.bucket)
    assert len(expiring(aws, LAKE.bucket)) == 3


@pytest.mark.parametrize("parameters", [{}, {"calve:deployment": "other"}])
def test_a_database_of_that_name_that_is_not_ours_is_refused_before_anything_is_made(aws, parameters):
    aws.glue.create_database(DatabaseInput={"Name": "trading", "Parameters": parameters})
    with pytest.raises(ConfigError, match="Glue database trading exists") as caught:
        adopt(LAKE, aws)
    assert "lake.import_database: true" in str(caught.value)
    assert aws.glue.get_database(Name="trading")["Database"].get("Parameters", {}) == parameters
    assert aws.s3.list_buckets()["Buckets"] == []


def test_of_an_imported_bucket_only_notifications_and_expiry_of_exports_change_and_its_own_stay(
    aws, notified
):
    aws.s3.create_bucket(Bucket="company", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    topic = boto3.client("sns", "eu-central-1").create_topic(Name="theirs")["TopicArn"]
    theirs = {"TopicConfigurations": [{"TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}]}
    aws.s3.put_bucket_notification_configuration(Bucket="company", NotificationConfiguration=theirs)
    imported = PROPERTIES | {
        "Bucket": "",
        "KeyAlias": "",
        "Database": "",
        "NotifyBucket": "company",
        "Expiring": '{"exports/weekly/": 90}',
    }
    assert adopt(from_properties(Lake, imported), aws) == {"KeyArn": ""}
    assert notified[-1]["EventBridgeConfiguration"] == {}
    assert notified[-1]["TopicConfigurations"][0]["TopicArn"] == topic
    assert {(prefix, days) for _, prefix, days in expiring(aws, "company")} == {("exports/weekly/", 90)}
    assert aws.glue.get_databases()["DatabaseList"] == []
    assert aws.kms.list_keys()["Keys"] == []


def test_another_bucket_is_another_lake():
    assert from_properties(Lake, PROPERTIES | {"Bucket": "other"}).id != LAKE.id
