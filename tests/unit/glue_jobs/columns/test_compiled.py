"""Compiled code is kept for the next process, also where the sources lie in a zip, as on Glue."""

import shutil
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest

KERNEL = """
from glue_jobs.columns.kernels import BYTES, kernel

LARGE = 1 << 64

@kernel((BYTES,))
def first(data):
    return data[0]
"""
NUMBERS = """
from numba import types
from numba.extending import intrinsic

@intrinsic
def nothing(_):
    return types.int64(), lambda context, builder, signature, given: context.get_constant(types.int64, 0)
"""
CALL = """
import numpy as np, adding
print(adding.first(np.frombuffer(b"7", dtype=np.uint8)), sum(adding.first.stats.cache_hits.values()))
"""


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    path = tmp_path / "packages.zip"
    root = Path(__file__).parents[4]
    with zipfile.ZipFile(path, "w") as archive:
        for part in ("calve", "glue_jobs"):
            for file in (root / part).rglob("*.py"):
                archive.write(file, file.relative_to(root))
        archive.writestr("adding.py", KERNEL)
    return path


def called(zipped: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(zipped), "TMPDIR": str(temporary), "HOME": "/nowhere"}
    return subprocess.run(
        [sys.executable, "-c", CALL], env=environment, capture_output=True, text=True, cwd="/"
    )


def test_a_zip_s_kernel_is_compiled_once(zipped, tmp_path):
    first, second = called(zipped, tmp_path), called(zipped, tmp_path)
    assert (first.stdout, first.stderr) == ("55 0\n", "")
    assert (second.stdout, second.stderr) == ("55 1\n", "")


def test_the_same_sources_in_another_zip_are_not_compiled_again(zipped, tmp_path):
    other = tmp_path / "elsewhere" / "of-another-name.zip"
    other.parent.mkdir()
    shutil.copy(zipped, other)
    assert [called(each, tmp_path).stdout for each in (zipped, other)] == ["55 0\n", "55 1\n"]
    with zipfile.ZipFile(other, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the name comes twice, and the later one counts
        archive.writestr("adding.py", KERNEL.replace("data[0]", "data[0] + 1"))
    assert called(other, tmp_path).stdout == "56 0\n"


def test_a_kernel_is_compiled_again_when_one_that_it_calls_or_a_number_changes(tmp_path):
    numbers, called, caller = (tmp_path / f"{name}.py" for name in ("numbers_of", "called", "adding"))
    numbers.write_text(f"{NUMBERS}STEP = 1\n")
    called.write_text(
        f"from numbers_of import STEP, nothing\n{KERNEL}".replace("data[0]", "data[0] + STEP + nothing()")
    )
    caller.write_text(f"from called import first as one\n{KERNEL}".replace("data[0]", "one(data)"))

    def results() -> list[str]:
        environment = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[4]}", "HOME": "/nowhere"}
        call = [sys.executable, "-c", CALL]
        return [subprocess.check_output(call, env=environment, text=True, cwd="/") for _ in range(2)]

    assert results() == ["56 0\n", "56 1\n"]
    numbers.write_text(f"{NUMBERS}STEP = 2\n")
    assert results() == ["57 0\n", "57 1\n"]
    called.write_text(called.read_text().replace("+ STEP", "+ STEP + 1"))
    assert results() == ["58 0\n", "58 1\n"]
    numbers.write_text(f"{NUMBERS}STEP = 2\n".replace("types.int64, 0", "types.int64, 7"))
    assert results() == ["65 0\n", "65 1\n"]


def test_code_that_another_user_could_have_written_is_not_run(zipped, tmp_path):
    called(zipped, tmp_path)
    (kept,) = tmp_path.glob("calve-kernels-*")
    kept.chmod(0o777)
    assert "another user can write there" in called(zipped, tmp_path).stderr
