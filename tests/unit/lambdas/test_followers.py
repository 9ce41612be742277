"""The head of a table, from Glue and its metadata file."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from calve.names import TableName
from lambdas.followers import Head, head, is_newer

NAME = TableName("trading", "trades")
LOCATION = "s3://lake/trading/trades/metadata/00002.gz.metadata.json"
METADATA = {
    "table-uuid": "6f1c",
    "last-sequence-number": 7,
    "last-updated-ms": 2000,
    "current-snapshot-id": 5,
    "snapshots": [
        {"snapshot-id": 9, "sequence-number": 7, "timestamp-ms": 1500},
        {"snapshot-id": 5, "sequence-number": 6, "timestamp-ms": 1000},
    ],
}


@pytest.fixture
def clients() -> Iterator[tuple[Any, Any]]:
    with mock_aws():
        glue, s3 = boto3.client("glue", "us-east-1"), boto3.client("s3", "us-east-1")
        s3.create_bucket(Bucket="lake")
        glue.create_database(DatabaseInput={"Name": "trading"})
        yield glue, s3


def put(glue: Any, s3: Any, metadata: dict[str, Any]) -> None:
    key = LOCATION.removeprefix("s3://lake/")
    s3.put_object(Bucket="lake", Key=key, Body=gzip.compress(json.dumps(metadata).encode()))
    table = {"Name": "trades", "Parameters": {"metadata_location": LOCATION}}
    glue.create_table(DatabaseName="trading", TableInput=table)


def test_where_main_stands_and_how_far_the_table_is(clients: tuple[Any, Any]) -> None:
    put(*clients, METADATA)
    found = head(*clients, NAME)
    assert found is not None
    assert (found.metadata_location, found.uuid) == (LOCATION, "6f1c")
    assert (found.snapshot_id, found.committed_ms) == (5, 1000)
    assert (found.sequence_number, found.updated_ms) == (7, 2000)


def test_an_empty_table(clients: tuple[Any, Any]) -> None:
    put(*clients, {"table-uuid": "6f1c", "last-sequence-number": 0, "last-updated-ms": 1, "snapshots": []})
    found = head(*clients, NAME)
    assert found is not None
    assert (found.snapshot_id, found.committed_ms) == (None, None)


def test_no_table(clients: tuple[Any, Any]) -> None:
    assert head(*clients, NAME) is None


def test_a_table_that_is_not_icebergs(clients: tuple[Any, Any]) -> None:
    clients[0].create_table(DatabaseName="trading", TableInput={"Name": "trades"})
    assert head(*clients, NAME) is None


def metadata(location: str, sequence: int, at_ms: int, *before: str) -> Head:
    return Head(NAME, "6f1c", location, sequence, at_ms, previous=frozenset(before))


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        pytest.param(metadata("b", 8, 20), metadata("a", 7, 10), id="another commit"),
        pytest.param(metadata("b", 7, 20), metadata("a", 7, 10), id="a rollback, or a property"),
        pytest.param(metadata("b", 7, 10, "a"), metadata("a", 7, 20), id="written by a slower clock"),
    ],
)
def test_which_of_two_metadata_files_is_newer(newer: Head, older: Head) -> None:
    assert is_newer(newer, older)
    assert not is_newer(older, newer)
    assert not is_newer(older, older)
