"""The quickstart, as a new user does it: with the package, in an empty folder, without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.embedded.processes import no_proxy
from tests import quickstart

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of calve's wheel in an environment with the packages of this one. It does not see the checkout."""
    made = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    source = made / "source"
    subprocess.run(["git", "clone", "--quiet", ROOT, source], check=True)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(made), str(source)]
    subprocess.run([*pip, *build], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made / "env"], check=True)
    [packages] = (made / "env").glob("lib/python*/site-packages")
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    [wheel] = made.glob("*.whl")
    python = made / "env" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel], check=True)
    return python.parent


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path: a long one would be cut and folded on the terminal."""
    with tempfile.TemporaryDirectory() as home:
        made = Path(home) / "shop"
        made.mkdir()
        yield made


@pytest.mark.long
def test_every_command_of_the_page_prints_what_the_page_shows(installed: Path, folder: Path) -> None:
    environment = {
        "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}",
        **{name: os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if name in os.environ},
        **no_proxy(),
    }
    page = quickstart.PAGE.read_text()
    try:
        ran = list(quickstart.run(page, folder, environment))
    finally:
        quickstart.printed("calve down", folder, environment)
    found = quickstart.written(page, iter(ran)).replace(str(folder), "~/shop")
    assert quickstart.alike(found) == quickstart.alike(page)
