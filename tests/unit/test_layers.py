"""The layer rule holds by machine: each way of breaking it is planted in a copy of the tree, and is caught."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "stacks", "glue_jobs", "lambdas", "calve")


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=60)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_tree_keeps_the_layers(tree: Path) -> None:
    result = lint(tree)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("calve/planted.py", "import boto3", "core is standard library"),
        ("calve/planted.py", "import pydantic", "core is standard library"),
        ("calve/planted.py", "import cli.progress", "operator above"),
        ("cli/planted.py", "import tests.standins", "nothing of calve"),
        ("glue_jobs/planted.py", "import confluent_kafka", "jobs are pyspark"),
        ("glue_jobs/planted.py", "import calve.settings", "jobs are pyspark"),
        ("glue_jobs/planted.py", "import lambdas", "operator above"),
        ("glue_jobs/planted.py", "import numba", "stay in two rooms"),
        ("lambdas/planted.py", "import pyspark", "functions have no Spark"),
        ("stacks/planted.py", "import boto3", "stacks have neither"),
    ],
)
def test_a_planted_violation_is_caught(tree: Path, module: str, line: str, broken: str) -> None:
    (tree / module).write_text(line + "\n")
    result = lint(tree)
    assert result.returncode == 1, result.stdout
    assert re.search(rf"{broken}.* BROKEN", result.stdout), result.stdout
