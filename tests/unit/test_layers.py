"""The layer rule holds by machine: each way of breaking it is planted in a copy of the tree, and is caught."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
        ("glue_jobs/planted.py", "import numba", "stay in their rooms"),
        ("lambdas/planted.py", "import pyspark", "functions have no Spark"),
        ("stacks/planted.py", "import boto3", "stacks have neither"),
        ("calve/table/planted.py", "import calve.config.job", "rooms of calve"),
        ("calve/unnamed/__init__.py", "", "rooms of calve"),
        ("glue_jobs/engines/planted.py", "import glue_jobs.modes.staging", "rooms of the jobs"),
        ("glue_jobs/iceberg/planted.py", "import glue_jobs.kafka.records", "rooms of the jobs"),
        ("glue_jobs/unnamed/__init__.py", "", "rooms of the jobs"),
        ("cli/embedded/planted.py", "import cli.config", "rooms of cli"),
        ("cli/unnamed/__init__.py", "", "rooms of cli"),
        ("stacks/base/planted.py", "import stacks.jobs.ingest", "rooms of stacks"),
        ("stacks/unnamed/__init__.py", "", "rooms of stacks"),
        ("lambdas/planted.py", "", "what functions share"),
        ("lambdas/links.py", "import lambdas.download.handler", "what functions share"),
        ("lambdas/download/planted.py", "import lambdas.csv_export.scan", "a function imports no other"),
    ],
)
def test_a_planted_violation_is_caught(tree: Path, module: str, line: str, broken: str) -> None:
    (tree / module).parent.mkdir(exist_ok=True)
    (tree / module).write_text(line + "\n")
    result = lint(tree)
    assert result.returncode == 1, result.stdout
    assert re.search(rf"{broken}.* BROKEN", result.stdout), result.stdout


STORED = ("calve/table/summary.py",)
"""The one module that knows the names that calve stores in tables."""
OTHERS = {
    "calve.yaml",  # the configuration
    "calve.schema.json",  # its JSON Schema, for editors
    "calve.zip",  # the code of a job
    "calve.deployment",  # the owner of objects in another catalog
    "calve.export.failed",  # events: calve/outputs/announcement.py has them all
}


def test_names_in_tables_stand_in_one_module() -> None:
    found = set()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name not in (*STORED, "calve/outputs/announcement.py"):
                found |= {(name, each) for each in names_of_calve(path) if each not in OTHERS}
    assert found == set()


def names_of_calve(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"calve\.[a-z_.-]+", node.value)
        ):
            yield node.value
