"""CPU time and memory of processes and of the machine, read from /proc (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """A living process: ticks of its own, ticks of the children that it has waited for, and pages in memory."""

    pid: int
    session: int
    own: int
    waited_for: int
    pages: int


def cpu_of_session(session: int) -> float:
    """CPU seconds of a session since it began, with all of it that has ended.

    Its leader adopts orphans (`bench.reaper`), so that the time of a process is always either its own or that of whoever has
    waited for it. The leader's own, which only waits, is left out.
    """
    found = list(of_session(session))
    own = sum(each.own for each in found if each.pid != session)
    return (own + sum(each.waited_for for each in found)) / TICKS_PER_S


def memory_of_session(session: int) -> int:
    """Bytes in memory, those that processes share counted for each of them."""
    return PAGE * sum(each.pages for each in of_session(session))


def cpu_of_processes(pids: Iterable[int]) -> float:
    """CPU seconds of these processes, with the children that they have waited for."""
    return sum(each.own + each.waited_for for each in map(_process, map(str, pids)) if each) / TICKS_PER_S


def cpu_of_machine() -> float:
    """CPU seconds that all cores have worked since boot: user, nice and system."""
    return (
        sum(int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4])
        / TICKS_PER_S
    )


def of_session(session: int) -> Iterator[Process]:
    return (each for each in _all() if each.session == session)


def _all() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (found := _process(folder.name)):
            yield found


def _process(pid: str) -> Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:  # it has ended
        return None
    own, waited_for = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return Process(int(pid), int(fields[3]), own, waited_for, int(fields[21]))
