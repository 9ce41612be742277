"""Whatever bytes come, the machines read no other than a record's own, and take no more memory than they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "count",
    [pytest.param(20_000, marks=pytest.mark.long), pytest.param(1_000_000, marks=pytest.mark.full)],
)
@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_mutated_values_are_read_within_bounds(tmp_path: Path, count: int, kind: str) -> None:
    checked = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.mutations", str(count), "7", kind]
    found = subprocess.run(command, env=checked, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    good = int(found.stdout.split()[0])
    assert count / 50 < good < count / 2
