"""Packages that calve itself must not have, in folders of the user's cache."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from cli.embedded.runtimes import Installation
from cli.progress import LineProgress


def wheels(lock: Path, log: Path) -> Path:
    """The folder of a lock's packages, installed once. log: pip's."""
    name = lock.parent.name
    made = Installation(f"what {name} needs", name, hashlib.sha256(lock.read_bytes()).hexdigest())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
    step = [*pip, "--target", str(made.folder), "--require-hashes", "-r", str(lock)]
    made.install([step], log, LineProgress(print), then="the same test")
    return made.folder
