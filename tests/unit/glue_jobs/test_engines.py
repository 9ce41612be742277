"""A job whose Python lacks what the columnar engine needs makes its tables by rows, and says why."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LOADING = """
import sys
sys.modules["numba"] = None
from glue_jobs import engines
loading = engines.load(None)
loading.wait()
print(loading.module, loading.lacks)
"""


def test_a_package_that_is_not_there_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", LOADING], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("None the job's Python lacks numba\n", "")
