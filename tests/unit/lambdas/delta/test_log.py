"""A Delta log: versions, checkpoints, vectors, and what is cleaned away."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyroaring import BitMap64

from calve.errors import Retryable
from lambdas.delta import log
from lambdas.delta.log import DeltaLog, LogState, removed, z85
from tests.unit.lambdas.delta.conftest import BUCKET, World


def add(path: str, **more: Any) -> dict[str, Any]:
    return {
        "add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True, "stats": "{}", **more}
    }


START: list[dict[str, Any]] = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["x"]}},
    {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "configuration": {"a": "b"}}},
]


@pytest.fixture
def made(world: World) -> DeltaLog:
    return DeltaLog(world.s3, f"s3://{BUCKET}/db/t")


def keys(made: DeltaLog) -> list[str]:
    found = made.s3.list_objects_v2(Bucket=BUCKET, Prefix="db/t/").get("Contents", ())
    return [each["Key"].removeprefix("db/t/") for each in found]


def written(made: DeltaLog, versions: int) -> LogState:
    """A log of so many versions: each adds a file, and every third removes one."""
    state = made.read()
    for number in range(state.version + 1, versions):
        actions = [add(f"f{number}"), {"txn": {"appId": "a", "version": number}}]
        if number % 3 == 2:
            actions.append(removed(state.files[f"f{number - 1}"]))
        state = made.write(state, [*(START if number == 0 else ()), *actions])
    return state


@pytest.mark.parametrize("versions", [0, 1, 9, 11, 12, 35])
def test_a_log_is_read_as_it_was_written(made: DeltaLog, versions: int) -> None:
    state = written(made, versions)
    assert made.read() == state
    assert state.version == versions - 1
    assert ("_delta_log/_last_checkpoint" in keys(made)) == (versions > 10)


def test_a_checkpoint_without_a_pointer_is_not_needed(made: DeltaLog) -> None:
    state = written(made, 15)
    made.s3.delete_object(Bucket=BUCKET, Key="db/t/_delta_log/_last_checkpoint")
    assert made.read() == state


def test_a_version_is_written_once(made: DeltaLog) -> None:
    before = written(made, 3)
    made.write(before, [add("mine")])
    with pytest.raises(Retryable, match="version 3"):
        made.write(before, [add("other")])
    assert "mine" in made.read().files


def test_old_versions_and_vectors_that_no_file_has_are_deleted(
    made: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "KEPT", timedelta(seconds=-60))
    monkeypatch.setattr(log, "CLEANED", 1)
    monkeypatch.setattr(log, "INLINE", 0)
    kept, gone = (made.vectors({"f": BitMap64([1])})["f"] for _ in range(2))
    made.write(LogState(), [*START, add("f", deletionVector=kept)])
    written(made, 11)
    vector = kept["pathOrInlineDv"].removeprefix(f"s3://{BUCKET}/db/t/")
    assert [each for each in keys(made) if "vectors" in each] == [vector]
    assert gone["pathOrInlineDv"] != kept["pathOrInlineDv"]
    assert [each.removeprefix("_delta_log/") for each in keys(made) if "_delta_log/0" in each] == [
        "00000000000000000010.checkpoint.parquet",
        "00000000000000000010.json",
    ]
    assert made.read().version == 10


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("s3://lake/db/t/data/day=2026-11-29/a.parquet", "data/day%3D2026-11-29/a.parquet"),
        ("s3://lake/db/t/data/side=a%20b/ä.parquet", "data/side%3Da%2520b/%C3%A4.parquet"),
        ("s3://other/a b.parquet", "s3://other/a%20b.parquet"),
    ],
)
def test_paths_are_encoded_and_come_back(made: DeltaLog, location: str, path: str) -> None:
    assert (made.path_of(location), made.location_of(path)) == (path, location)


def test_z85_is_that_of_its_specification() -> None:
    assert z85(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
