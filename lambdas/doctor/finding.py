"""Checks and their findings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from calve.errors import CalveError

PROBE_LIMIT_S = 15.0
State = Literal["ok", "warn", "fail", "absent"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `absent` is no problem. seen_from: `here` or `AWS`."""

    check: str
    state: State
    detail: str
    cure: str = ""
    seen_from: str = "here"


Probe = Callable[[], "Finding | Iterable[Finding]"]


def examine(probes: Mapping[str, Probe], *, limit_s: float = PROBE_LIMIT_S) -> list[Finding]:
    """Run every probe with a time limit. A probe that fails or hangs is a finding too."""
    found: dict[str, list[Finding]] = {}

    def run(name: str, probe: Probe) -> None:
        rows: list[Finding] = []
        try:
            answer = probe()
            rows.extend([answer] if isinstance(answer, Finding) else answer)
        except CalveError as error:
            rows.append(of_error(name, error))
        except Exception as error:  # noqa: BLE001  the doctor has to survive what it examines
            # Some errors quote their input, which may be secret.
            kind = type(error)
            harmless = isinstance(error, OSError) or kind.__module__.startswith("botocore.")
            rows.append(Finding(name, "fail", f"{kind.__name__}: {error}" if harmless else kind.__name__))
        found[name] = rows

    threads = {
        name: threading.Thread(target=run, args=(name, probe), daemon=True) for name, probe in probes.items()
    }
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(limit_s)
    late = {name: [Finding(name, "warn", f"no answer within {limit_s:.0f} s")] for name in probes}
    return [each for name in probes for each in found.get(name, late[name])]


def of_error(check: str, error: CalveError) -> Finding:
    """A system's error, with its fix."""
    return Finding(check, "fail", error.message, error.fix or "")
