"""Processes that outlive their command, the record of them, and the loopback interface that they listen on.

A process is stopped by its own id only.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import IO

from calve import http_client
from calve.errors import Fatal

HOST = "127.0.0.1"
STOP_DEADLINE_S = 10.0
POLL_S = 0.05
LEAST_FILES = 1024
MANY_FILES = 10_240  # as many as macOS allows
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_children: dict[int, subprocess.Popen[bytes]] = {}
_blocks: set[int] = set()
"""The children of `child` that run."""
_ending = threading.Event()
STATE_VERSION = 1


def free_ports(count: int) -> list[int]:
    """Return different ports that nothing listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind((HOST, 0))
        return [free.getsockname()[1] for free in sockets]


def no_proxy() -> dict[str, str]:
    """Environment variables that let other clients reach this machine directly, too."""
    hosts = (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), HOST, "localhost")
    return dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(filter(None, hosts)))


def call(url: str, *, method: str = "GET", body: bytes | None = None, timeout_s: float = 2.0) -> int:
    """Return the status of the answer; 0 if there was none."""
    headers = {"Content-Type": "application/json"} if body else {}
    try:
        return http_client.send(
            url, method=method, body=body, headers=headers, timeout_s=timeout_s, proxies=False
        ).status
    except http_client.NoAnswer:
        return 0


@dataclass(frozen=True, slots=True)
class Process:
    """A started process; `started` tells it from a later one with the same id."""

    pid: int
    started: str


def allow_open_files() -> None:
    """Let this process and its children open as many files as the system allows; a broker and Spark need many."""
    import resource

    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = most == resource.RLIM_INFINITY
    wanted = MANY_FILES if unlimited else min(most, MANY_FILES)
    if wanted < LEAST_FILES:
        raise Fatal(
            f"a process may open {most} files here, and Spark and the broker need {LEAST_FILES}",
            fix=f"raise the hard limit, then try again: ulimit -n {LEAST_FILES} as root, or in /etc/security/limits.conf",
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def start(command: list[str], *, log: Path, environment: Mapping[str, str], folder: Path) -> Process:
    """Start a process in its own session, with its output in `log`."""
    allow_open_files()
    log.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    _children[child.pid] = child
    return Process(child.pid, birth(child.pid) or "gone")


def alive(process: Process) -> bool:
    """Tell whether exactly this process still runs (paused counts as running)."""
    now = birth(process.pid)
    if now is None and (child := _children.pop(process.pid, None)):
        child.wait()
    return now == process.started


def birth(pid: int) -> str | None:
    """When the process with this id began, in the system's notation; None if there is none, or a zombie."""
    if Path("/proc/self/stat").exists():
        try:
            # The name, in parentheses, may hold anything: the fields are counted from its end (man 5 proc).
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    answer = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True)
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def stop(*stopped: Process) -> None:
    """Terminate these processes and their groups at once, then kill them after a deadline. A reused id is left alone."""
    ours = [each for each in stopped if birth(each.pid) in (each.started, None)]
    for each in ours:
        with suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGCONT)
            os.killpg(each.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_DEADLINE_S
    while any(map(alive, ours)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    for each in ours:
        kill_group(each.pid)
    while any(map(alive, ours)):
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Starting:
    """A server that starts: `ready` is called until it returns true."""

    name: str
    process: Process
    ready: Callable[[], bool]
    log: Path


def wait_until_ready(
    servers: Sequence[Starting], *, deadline_s: float, on_ready: Callable[[str], object] = lambda _name: None
) -> None:
    """Wait for all; raise Fatal with the end of the log if one ends early or the time is up."""
    deadline = time.monotonic() + deadline_s
    waiting = list(servers)
    while waiting:
        late = time.monotonic() > deadline
        for server in list(waiting):
            if server.ready():
                waiting.remove(server)
                on_ready(server.name)
            elif (ended := not alive(server.process)) or late:
                how = "ended while it started" if ended else f"was not ready after {deadline_s:.0f} s"
                raise Fatal(f"{server.name} {how}\n{tail(server.log)}", fix=f"read {server.log}")
        time.sleep(POLL_S)


def tail(log: Path, lines: int = 12) -> str:
    try:
        text = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "  (no log)"
    return "\n".join(f"  {line[:300]}" for line in text[-lines:]) or "  (empty log)"


@contextmanager
def child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    errors: IO[str] | int,
    patient: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """A process whose output the block reads. Neither it nor its children, such as Spark's JVM, outlive the block.

    patient: it may finish its work after SIGTERM.
    """
    if _ending.is_set():
        raise KeyboardInterrupt
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
    )
    _blocks.add(process.pid)
    try:
        yield process
    finally:
        _blocks.discard(process.pid)
        try:
            if patient and process.poll() is None:
                process.terminate()
                process.communicate()
        finally:
            kill_group(process.pid)
            process.communicate()


Work = Callable[[], object]


def at_once(*works: Work) -> None:
    """Do all works at the same time, each in a thread. Ctrl-C, or the failure of one, ends the children of the others.

    Raises the first failure.
    """
    with ThreadPoolExecutor(len(works)) as pool:
        begun = [pool.submit(each) for each in works]
        try:
            wait(begun, return_when=FIRST_EXCEPTION)
            for each in begun:
                if each.done():
                    each.result()
        except BaseException:
            _ending.set()
            for pid in list(_blocks):
                kill_group(pid)
            raise
        finally:
            wait(begun)
            _ending.clear()


def kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


@contextmanager
def signals_held() -> Iterator[None]:
    """Postpone Ctrl-C and termination until the block has ended."""
    held: list[int] = []
    try:
        with handled(ENDING, lambda number, _frame: held.append(number)):
            yield
    finally:
        for late in held:
            signal.raise_signal(late)


@contextmanager
def termination_as_exit() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that started processes are stopped."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with handled((signal.SIGTERM, signal.SIGHUP), leave):
        yield


@contextmanager
def handled(signals: Sequence[int], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle signals with `handler`. Only the main thread receives them: in another one this does nothing."""
    try:
        before = {number: signal.signal(number, handler) for number in signals}
    except ValueError:
        before = {}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@dataclass(frozen=True, slots=True)
class State:
    """Ports, processes and credentials of one stack; `ready` once all of it has answered."""

    cluster_id: str
    sasl_password: str = field(repr=False)
    ports: dict[str, int]
    processes: dict[str, Process] = field(default_factory=dict)
    ready: bool = False
    sasl_user: str = "calve"

    def with_process(self, name: str, process: Process) -> State:
        return replace(self, processes={**self.processes, name: process})


def read_state(file: Path) -> State | None:
    """Return the recorded state; None if there is none or it is invalid."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        document = json.loads(file.read_text())
        if document.pop("version") == STATE_VERSION:
            processes = {name: Process(**value) for name, value in document.pop("processes").items()}
            return State(**document, processes=processes)
    return None


def write_state(file: Path, state: State) -> None:
    """Replace the record atomically; only its owner may read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(json.dumps({"version": STATE_VERSION, **asdict(state)}, indent=2))
    new.replace(file)


@contextmanager
def silent() -> Iterator[None]:
    """Code outside Python writes no errors in the block; processes that are started in it never do."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
