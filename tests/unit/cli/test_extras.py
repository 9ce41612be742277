"""`pip install calve` without extras: commands that look at a deployment work, others name the extra that they need."""

from __future__ import annotations

import json
import subprocess
import sys

from cli.main import CONTENTS, EXTRAS

NEEDS_SPARK = {"cli.project.preview", "cli.project.capture.command"}
WITHOUT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRAS)}:
            raise ModuleNotFoundError(f"No module named {{name}}", name=name.partition(".")[0])
sys.meta_path.insert(0, Absent())
"""


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT + code, *words], capture_output=True, text=True)


def test_only_a_command_that_runs_spark_here_needs_an_extra_to_be_called() -> None:
    modules = sorted({module for panel in CONTENTS.values() for module in panel.values()})
    done = python(
        f"""
import importlib, json
missing = []
for each in {modules}:
    try:
        importlib.import_module(each)
    except ModuleNotFoundError:
        missing.append(each)
print(json.dumps(missing))
"""
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == NEEDS_SPARK


def test_the_error_names_the_extra() -> None:
    done = python("from cli.main import main; sys.argv[0] = 'calve'; main()", "preview", "trades")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: this command needs the package pyspark",
        '  Fix: pip install "calve[local]"',
    ]
