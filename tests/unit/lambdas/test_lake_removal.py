import json
import math

import boto3
import pytest
from moto import mock_aws

from calve.errors import Retryable
from lambdas.function import from_properties
from lambdas.lake import removal as handler
from lambdas.lake.removal import Clients, Lake, remove
from tests.unit.lambdas.context import Context

PROPERTIES = {
    "Deployment": "trading",
    "Bucket": "trading-lake",
    "Database": "trading",
    "ImportedDatabase": "",
    "KeyAlias": "alias/trading-lake",
    "Warehouse": "s3://trading-lake",
    "ClusterDatabases": "false",
}
LAKE = from_properties(Lake, PROPERTIES)


class Stacks:
    """CloudFormation, which says what becomes of a stack."""

    def __init__(self, status):
        self.status = status

    def describe_stacks(self, *, StackName):
        return {"Stacks": [{"StackName": StackName, "StackStatus": self.status}]}


@pytest.fixture
def aws(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        s3, kms, glue = (boto3.client(name) for name in ("s3", "kms", "glue"))
        s3.create_bucket(Bucket="trading-lake")
        key = kms.create_key()["KeyMetadata"]["KeyId"]
        kms.create_alias(AliasName="alias/trading-lake", TargetKeyId=key)
        for database in ("trading", "lkc-1", "somebodys"):
            bucket = "elsewhere" if database == "somebodys" else "trading-lake"
            owner = {} if database == "somebodys" else {"calve:deployment": "trading"}
            place = f"s3://{bucket}/{database}"
            glue.create_database(DatabaseInput={"Name": database, "LocationUri": place, "Parameters": owner})
            table(glue, database, "stock_trades", bucket)
        yield Clients(s3, kms, glue, Stacks("DELETE_IN_PROGRESS"))


def table(glue, database, name, bucket):
    place = {"Location": f"s3://{bucket}/{database}/{name}"}
    glue.create_table(DatabaseName=database, TableInput={"Name": name, "StorageDescriptor": place})


def databases(aws):
    return {each["Name"] for each in aws.glue.get_databases()["DatabaseList"]}


def tables(aws, database):
    return {each["Name"] for each in aws.glue.get_tables(DatabaseName=database)["TableList"]}


def test_nothing_is_left_of_the_lake_not_even_versions_uploads_and_tables_that_cloudformation_never_knew(aws):
    aws.s3.put_bucket_versioning(Bucket=LAKE.bucket, VersioningConfiguration={"Status": "Enabled"})
    for number in range(1100):
        aws.s3.put_object(Bucket=LAKE.bucket, Key=f"trading/{number}", Body=b"")
    aws.s3.delete_object(Bucket=LAKE.bucket, Key="trading/1")
    aws.s3.create_multipart_upload(Bucket=LAKE.bucket, Key="exports/half")
    remove(LAKE, aws, time_left_s=60)
    assert aws.s3.list_buckets()["Buckets"] == []
    assert databases(aws) == {"lkc-1", "somebodys"}
    (key,) = aws.kms.list_keys()["Keys"]
    assert aws.kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]["KeyState"] == "PendingDeletion"
    assert all(alias["AliasName"] != LAKE.key_alias for alias in aws.kms.list_aliases()["Aliases"])


def test_databases_made_per_cluster_go_and_those_that_lie_elsewhere_stay(aws):
    remove(from_properties(Lake, PROPERTIES | {"ClusterDatabases": "true"}), aws, time_left_s=60)
    assert databases(aws) == {"somebodys"}


@pytest.mark.parametrize("cluster_databases", ["true", "false"])
def test_a_database_that_somebody_else_made_stays_even_where_it_lies_in_the_warehouse(aws, cluster_databases):
    properties = PROPERTIES | {"Bucket": "", "Database": "others", "ClusterDatabases": cluster_databases}
    for parameters in ({}, {"calve:deployment": "other"}):
        place = "s3://trading-lake/others"
        made = {"Name": "others", "LocationUri": place, "Parameters": parameters}
        aws.glue.create_database(DatabaseInput=made)
        table(aws.glue, "others", "stock_trades", "trading-lake")
        remove(from_properties(Lake, properties), aws, time_left_s=60)
        assert tables(aws, "others") == {"stock_trades"}
        aws.glue.delete_database(Name="others")


def test_tables_that_somebody_else_put_into_the_database_stay_with_it(aws):
    table(aws.glue, "trading", "theirs", "elsewhere")
    aws.glue.create_table(DatabaseName="trading", TableInput={"Name": "view", "TableType": "VIRTUAL_VIEW"})
    remove(LAKE, aws, time_left_s=60)
    assert tables(aws, "trading") == {"theirs", "view"}


def test_an_imported_database_loses_only_the_tables_whose_files_go(aws):
    table(aws.glue, "somebodys", "orders", "trading-lake")
    remove(
        from_properties(Lake, PROPERTIES | {"Database": "", "ImportedDatabase": "somebodys"}),
        aws,
        time_left_s=60,
    )
    assert tables(aws, "somebodys") == {"stock_trades"}
    assert databases(aws) == {"trading", "lkc-1", "somebodys"}


def test_an_imported_bucket_and_key_stay(aws):
    aws.s3.put_object(Bucket="trading-lake", Key="theirs", Body=b"")
    remove(from_properties(Lake, PROPERTIES | {"Bucket": "", "KeyAlias": ""}), aws, time_left_s=60)
    assert aws.s3.head_object(Bucket="trading-lake", Key="theirs")
    assert aws.kms.describe_key(KeyId="alias/trading-lake")["KeyMetadata"]["KeyState"] == "Enabled"
    assert databases(aws) == {"lkc-1", "somebodys"}


def test_a_removal_may_be_repeated(aws):
    remove(LAKE, aws, time_left_s=60)
    remove(LAKE, aws, time_left_s=60)


def test_without_time_it_says_that_another_destroy_goes_on(aws):
    aws.s3.put_object(Bucket="trading-lake", Key="a", Body=b"")
    with pytest.raises(Retryable, match="more objects"):
        remove(LAKE, aws, time_left_s=-math.inf)


@pytest.mark.parametrize(
    "status", ["UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS"]
)
def test_taking_the_key_back_or_rolling_back_removes_nothing(aws, monkeypatch, status):
    answers = []
    clients = {"cloudformation": Stacks(status)}
    monkeypatch.setattr("boto3.client", lambda name: clients.get(name))
    monkeypatch.setattr("lambdas.custom_resource._deliver", lambda _, answer: answers.append(answer))
    handler.handle(request("Delete"), Context())
    assert answers[0]["Status"] == "SUCCESS"
    assert "trading" in databases(aws)


def test_destroying_the_stack_removes_the_lake(aws, monkeypatch):
    answers = []
    clients = {"s3": aws.s3, "kms": aws.kms, "glue": aws.glue, "cloudformation": aws.cloudformation}
    monkeypatch.setattr("boto3.client", clients.get)
    monkeypatch.setattr("lambdas.custom_resource._deliver", lambda _, answer: answers.append(answer))
    for kind in ("Create", "Update"):
        handler.handle(request(kind), Context())
        assert "trading" in databases(aws)
    handler.handle(request("Delete"), Context())
    assert [each["Status"] for each in answers] == ["SUCCESS"] * 3
    assert json.dumps(answers[2]["PhysicalResourceId"])
    assert "trading" not in databases(aws)


def request(kind):
    return {
        "RequestType": kind,
        "RequestId": "1",
        "ResponseURL": "http://127.0.0.1:9/",
        "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/trading-lake/1",
        "LogicalResourceId": "Removal",
        "PhysicalResourceId": LAKE.id,
        "ResourceProperties": PROPERTIES,
    }
