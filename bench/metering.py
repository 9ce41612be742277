"""A program under measurement: a session of its own, looked at whenever it says that it has come to a mark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cpu import (
    cpu_of_machine,
    cpu_of_processes,
    cpu_of_session,
    memory_of_session,
)
from cli.embedded import processes
from cli.embedded.layout import Layout
from cli.embedded.processes import tail
from cli.embedded.stack import Stack

ROOT = Path(__file__).parents[1]
LOOK_S = 0.2
END_S = 60


@dataclass(frozen=True, slots=True)
class Reading:
    """What had been used at a moment, in seconds; `other_s`: by nobody who has to do with the benchmark."""

    at: float
    cpu_s: float
    broker_s: float
    other_s: float


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used between two readings."""

    wall_s: float
    cpu_s: float
    broker_s: float
    other_s: float

    @classmethod
    def between(cls, begin: Reading, end: Reading) -> Spent:
        return cls(
            end.at - begin.at,
            end.cpu_s - begin.cpu_s,
            end.broker_s - begin.broker_s,
            max(0.0, end.other_s - begin.other_s),
        )

    @property
    def disturbance(self) -> float:
        """The share of the machine that others have used."""
        return self.other_s / (self.wall_s * (os.cpu_count() or 1))


@dataclass(slots=True)
class Metered:
    """A running program. It writes marks on its standard output and goes on once each is answered."""

    process: subprocess.Popen[str]
    stack: Stack
    log: Path
    peak_bytes: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def read(self) -> Reading:
        servers = processes.read_state(Layout(self.stack.root).stack_file)
        pids = {name: each.pid for name, each in servers.processes.items()} if servers else {}
        cpu_s = cpu_of_session(self.process.pid)
        known = cpu_s + cpu_of_processes([os.getpid(), *pids.values()])
        broker_s = cpu_of_processes([pids["kafka"]]) if "kafka" in pids else 0.0
        return Reading(time.monotonic(), cpu_s, broker_s, cpu_of_machine() - known)

    def mark(self) -> dict[str, Any]:
        """Wait for the next mark; what else the program writes goes into its log.

        Raises:
            RuntimeError: it has ended before.
        """
        with self.log.open("a") as log:
            for line in self.process.stdout or ():
                if line.startswith('{"mark"'):
                    found: dict[str, Any] = json.loads(line)
                    return found
                log.write(line)
        raise RuntimeError(f"the program ended early; {self.log} ends:\n{tail(self.log)}")

    def answer(self) -> None:
        """Let the program go on."""
        if self.process.stdin:
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.peak_bytes = max(self.peak_bytes, memory_of_session(self.process.pid))


@contextmanager
def metered(
    command: Sequence[str], environment: Mapping[str, str], *, stack: Stack, log: Path, marks: bool = True
) -> Iterator[Metered]:
    """Run a program; whatever is left of it when the block ends is stopped.

    Without `marks` all that it writes goes into the log, as it comes.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.reaper", *command],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if marks else errors,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    running = Metered(process, stack, log)
    looking = threading.Thread(target=running._look, daemon=True)
    looking.start()
    try:
        yield running
    finally:
        running._over.set()
        looking.join()
        _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
