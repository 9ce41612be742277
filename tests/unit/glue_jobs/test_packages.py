"""A job whose Python lacks a package that it needs stops at its start, and names it."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STARTING = """
import sys
sys.modules[{package!r}] = None
from glue_jobs import ingest
from glue_jobs.engines import choice
from calve.errors import Fatal
try:
    {call}
except Fatal as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("kafka.net.manager", "ingest.require_packages()"),
        ("cramjam", "ingest.require_packages()"),
        ("numba", "ingest.require_packages()"),
        ("pyroaring", "ingest.require_packages()"),
        ("pyarrow.parquet", "choice.loaded(None)"),
    ],
)
def test_a_package_that_is_not_there_is_named(package: str, call: str) -> None:
    code = STARTING.format(package=package, call=call)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    told = f"the job cannot import {package} under Python {platform.python_version()} ({sys.executable})\n  Fix: "
    assert done.stdout.startswith(told)


LACKING = """
import sys
for name in ("kafka", "numba", "cramjam", "google_crc32c", "pyroaring"):
    sys.modules[name] = None
import glue_jobs.maintain
import glue_jobs.ingest
"""
EARLY = """
import sys
import glue_jobs.ingest
assert "glue_jobs.kafka" not in sys.modules, "it looks for its packages when it is imported"
"""


@pytest.mark.parametrize("code", [LACKING, EARLY])
def test_a_job_starts_before_its_packages_are_there(code: str) -> None:
    """On Glue the ingest job brings them along, and they are there once Spark is; the maintenance job has none."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
