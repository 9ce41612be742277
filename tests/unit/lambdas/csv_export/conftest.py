"""One lake, emptied for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from tests.unit.lambdas.csv_export.lake import BUCKET, World, world


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Made once: clients take a second to make."""
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield world(tmp_path_factory.mktemp("lake"))


@pytest.fixture
def lake(shared: World, tmp_path: Path) -> Iterator[World]:
    fresh = World(tmp_path, shared.catalog, shared.s3)
    yield fresh
    for table in fresh.catalog.list_tables("trading"):
        fresh.catalog.drop_table(table)
    for key in fresh.objects():
        fresh.s3.delete_object(Bucket=BUCKET, Key=key)
