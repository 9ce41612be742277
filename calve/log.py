"""One JSON line per fact on standard output, never a record's value or a secret. `docs/events.md` lists the events."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime

_lock = threading.Lock()


def event(name: str, **facts: object) -> None:
    """Write `name` and its facts; values must be JSON or have a plain `str`."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps({"time": now, "event": name, **facts}, default=str)
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
