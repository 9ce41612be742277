"""CPU seconds of a command with all its processes, read from /proc (Linux)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Run:
    """A finished command. `other_cpu_s`: what the rest of the machine, the broker included, used meanwhile."""

    wall_s: float
    cpu_s: float
    other_cpu_s: float


def run(command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> Run:
    """Run a command in a session of its own and add up the CPU time of every process of that session.

    The last look is at most 20 ms before a process ends, so that a run of many seconds is right to a few parts in a thousand.

    Raises:
        RuntimeError: the command failed; `log` has what it printed.
    """
    began, machine = time.monotonic(), _machine()
    with log.open("w") as out:
        process = subprocess.Popen(
            command, env=dict(environment), stdout=out, stderr=out, start_new_session=True
        )
        used: dict[str, int] = {}
        while process.poll() is None:
            used |= _of_session(process.pid)
            time.sleep(POLL_S)
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}; see {log}")
    cpu_s = sum(used.values()) / TICKS_PER_S
    return Run(time.monotonic() - began, cpu_s, (_machine() - machine) / TICKS_PER_S - cpu_s)


def cpu_of_session(session: int) -> float:
    """CPU seconds that the living processes of a session have used so far."""
    return sum(_of_session(session).values()) / TICKS_PER_S


def _of_session(session: int) -> dict[str, int]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it ended between the two looks
                continue
            if int(fields[3]) == session:
                found[folder.name] = int(fields[11]) + int(fields[12])
    return found


def _machine() -> int:
    """Ticks that all cores have worked since boot: user, nice and system."""
    return sum(int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4])
