"""The folder of what calve downloads: one for each user, shared by all projects and releases."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def downloads() -> Path:
    """`calve` in the user's cache: of the variable XDG_CACHE_HOME, else of ~/.cache (XDG Base Directory Specification)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".cache") / "calve"


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Keep other processes of this user from the same work until the block ends."""
    folder = downloads()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
