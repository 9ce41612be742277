"""The credentials of data files, and which answers of S3 end a run: those that another attempt would get, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from botocore.credentials import RefreshableCredentials
from pyarrow import fs

from glue_jobs.iceberg import storage
from glue_jobs.iceberg.storage import Storage


def keys_of(files: fs.FileSystem) -> tuple[str | None, ...]:
    """The keys that a client of S3 has, by what it says of itself for another process."""
    made = files.__reduce__()[1][0]
    return made["access_key"], made["secret_key"], made["session_token"]


@pytest.mark.parametrize(("lasts_s", "clients"), [(3600, 1), (60, 2)])
def test_arrow_gets_new_keys_when_boto_renews_them_and_keeps_its_client_until_then(
    lasts_s: int, clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def ask() -> dict[str, str]:
        nonlocal made
        made += 1
        ends = datetime.now(UTC) + timedelta(seconds=lasts_s)
        return {
            "access_key": f"key{made}",
            "secret_key": f"secret{made}",
            "token": f"token{made}",
            "expiry_time": ends.isoformat(),
        }

    role = RefreshableCredentials.create_from_metadata(ask(), ask, "container-role")
    monkeypatch.setattr(storage, "_credentials", lambda: role)
    first, second = (Storage("eu-west-1")._place("s3://lake/a.parquet")[0] for _ in range(2))
    assert (first is second) is (clients == 1)
    assert keys_of(second) == (f"key{made}", f"secret{made}", f"token{made}")


def test_without_credentials_of_boto_arrow_looks_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_credentials", lambda: None)
    files, path = Storage("eu-west-1")._place("s3://lake/b.parquet")
    assert path == "lake/b.parquet"
    assert keys_of(files) == (None, None, None)


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("ACCESS_DENIED", True),
        ("INVALID_ACCESS_KEY_ID", True),
        ("EXPIRED_TOKEN", True),
        ("SIGNATURE_DOES_NOT_MATCH", True),
        ("SLOW_DOWN", False),
        ("NETWORK_CONNECTION", False),
        ("INTERNAL_FAILURE", False),
    ],
)
def test_a_run_ends_at_a_refusal_and_not_at_a_disturbance(code: str, ends: bool) -> None:
    def create(_: str) -> None:
        raise OSError(f"When putting key 'a' in bucket 'lake': AWS Error {code} during PutObject: no")

    found = storage._refusal(cast("Storage", SimpleNamespace(create=create)), "s3://lake/a")
    assert found == (code if ends else None)
