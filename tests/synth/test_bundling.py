"""What is in a function's bundle, built for where functions run."""

import re
import zipfile

import pytest

from stacks.base.bundling import ROOT, Runtime, bundle_of

LIMIT_BYTES = 262_144_000


def test_a_bundle_of_the_same_files_has_the_same_hash_and_another_runtime_another():
    first = bundle_of("lake", Runtime()).hash()
    assert bundle_of("lake", Runtime()).hash() == first
    assert bundle_of("lake", Runtime(architecture="x86_64")).hash() != first
    assert bundle_of("snowflake", Runtime()).hash() != first


def test_a_bundle_has_the_core_without_its_settings_and_one_function(tmp_path):
    bundle = bundle_of("lake", Runtime())
    names = {file.relative_to(ROOT).as_posix() for file in bundle.sources}
    assert {"calve/errors.py", "lambdas/custom_resource.py", "lambdas/lake/removal.py"} <= names
    assert not {name for name in names if name.startswith(("calve/settings", "lambdas/snowflake"))}


def test_functions_get_nothing_whose_hash_is_not_known():
    functions = [file.parent for file in (ROOT / "lambdas").glob("*/__init__.py")]
    assert functions
    for function in functions:
        locked = (function / "requirements.txt").read_text()
        for each in re.split(r"\n(?=\S)", locked.strip()):
            assert re.match(r"[\w.\[\]-]+==\S+.*--hash=sha256:", each, re.DOTALL), (function.name, each)
        for wanted in (function / "requirements.in").read_text().split():
            assert re.sub(r"\[.*\]", "", wanted) in locked.split(), (function.name, wanted)


@pytest.mark.full
def test_the_release_bundle_of_the_export_fits_and_has_wheels_for_arm64_and_python_3_13(tmp_path):
    assert bundle_of("csv_export", Runtime()).try_bundle(str(tmp_path))
    with zipfile.ZipFile(made := tmp_path / "bundle.zip") as archive:
        archive.extractall(tmp_path)
    made.unlink()
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert size < LIMIT_BYTES, f"{size:,} bytes"
    tags = {
        tag
        for wheel in tmp_path.glob("*.dist-info/WHEEL")
        for tag in re.findall(r"^Tag: (.*)$", wheel.read_text(), re.MULTILINE)
    }
    native = {tag for tag in tags if not tag.endswith("-any")}
    assert native
    assert all(tag.endswith("aarch64") for tag in native), native
    assert all(re.match(r"cp313-cp313|cp3\d+-abi3|cp313-none|py3-none", tag) for tag in native), native
    assert not list(tmp_path.glob("boto*"))
    libraries = [file for file in tmp_path.rglob("*.so*") if file.is_file()]
    assert libraries
    for file in libraries:
        with file.open("rb") as opened:
            header = opened.read(20)
        if header[:4] == b"\x7fELF":
            assert header[18:20] == b"\xb7\x00", file  # EM_AARCH64
