"""Glue lacks packages that the ingest job brings along and that are there only once Spark is; the maintenance job has none."""

from __future__ import annotations

import subprocess
import sys

import pytest

LACKING = """
import sys
for name in ("kafka", "numba", "cramjam", "google_crc32c"):
    sys.modules[name] = None
import {module}
"""


@pytest.mark.parametrize("module", ["glue_jobs.ingest", "glue_jobs.maintain"])
def test_a_job_starts_before_its_packages_are_there(module: str) -> None:
    started = subprocess.run(
        [sys.executable, "-c", LACKING.format(module=module)], capture_output=True, text=True, check=False
    )
    assert started.returncode == 0, started.stderr
