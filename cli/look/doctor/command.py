"""`calve doctor`: every check as a row, and the checks of this machine."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer

from cli.config import Common, profile_is_named
from cli.embedded import aws, runtimes
from cli.embedded.layout import Layout, project_root
from cli.embedded.processes import HOST, alive, read_state
from cli.embedded.runtimes import find_java, java_version
from cli.embedded.stack import Server, answers
from cli.look.doctor.deployment import of_deployment
from lambdas.doctor.finding import Finding, Probe, examine
from stacks.jobs.jars import damaged, jar_folder, pinned, present

RemoteOption = Annotated[
    bool,
    typer.Option("--remote", help="Look from the network of the jobs, too, by a function of the deployment."),
]
GIB = 1 << 30
DISK_NEEDED = 3 * GIB
MEMORY_NEEDED = 4 * GIB


def doctor(*, given: Common, remote: RemoteOption = False) -> None:
    """Check this machine, and the systems of the configuration; every fault comes with its fix.

    Nothing is changed, and no secret is shown. With --remote, what a laptop cannot reach is looked at in AWS.

    Exits with 1 when a check fails.

    Example:
      calve doctor --remote
    """
    console = given.console
    found = [
        *examine(probes(project_root(), embedded=not profile_is_named())),
        *of_deployment(given.config, given.env, remote=remote),
    ]
    console.table("calve doctor", [_row(each) for each in found])
    console.document([_row(each) for each in found])
    if any(each.state == "fail" for each in found):
        raise typer.Exit(1)


def _row(finding: Finding) -> dict[str, str]:
    row = asdict(finding)
    return {"check": row.pop("check"), "from": row.pop("seen_from"), **row}


def probes(root: Path, *, embedded: bool = True) -> dict[str, Probe]:
    """The checks of a machine and, unless a profile was named, of the project's embedded stack."""
    checks = CHECKS | (STACK_CHECKS if embedded else {})
    return {name: partial(check, root) for name, check in checks.items()}


def python(_root: Path) -> Finding:
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Finding("python", "ok", f"{version} ({sys.executable})")
    return Finding("python", "fail", f"{version}; needs 3.11 to 3.13", "make clean setup PYTHON=python3.13")


def java(root: Path) -> Finding:
    found = find_java(Layout(root))
    if java_version(Path(found.executable)) is None:
        fix = "export JAVA_HOME=<a Java 17 or 21>"
        return Finding("java", "fail", f"{found.executable} does not run", fix)
    detail = f"{found.version} from {found.source} ({found.home})"
    if os.environ.get("JAVA_HOME") and found.source != "JAVA_HOME":
        return Finding("java", "warn", f"{detail}; JAVA_HOME is no Java 17 or 21", "unset JAVA_HOME")
    return Finding("java", "ok", detail)


def disk(root: Path) -> Finding:
    free = shutil.disk_usage(root).free
    detail, fix = f"{free / GIB:,.1f} GiB free", "make clean, or free some room"
    if free < DISK_NEEDED:
        return Finding("disk", "fail", f"{detail}, {DISK_NEEDED / GIB:.0f} GiB needed", fix)
    return Finding("disk", "ok", detail)


def memory(_root: Path) -> Finding:
    available = available_memory(Path("/proc/meminfo"))
    detail, fix = f"{available / GIB:,.1f} GiB available", "close other programs"
    if available < MEMORY_NEEDED:
        return Finding("memory", "warn", f"{detail}, {MEMORY_NEEDED / GIB:.0f} GiB wanted", fix)
    return Finding("memory", "ok", detail)


def available_memory(meminfo: Path) -> int:
    """Return the bytes available without swapping, or the machine's total if the system does not report it."""
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def loopback(_root: Path) -> Finding:
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen(1)
        with socket.create_connection(server.getsockname(), timeout=3):
            return Finding("loopback", "ok", f"{HOST} reachable, ports are given freely")


def jars(_root: Path) -> Finding:
    folder = jar_folder()
    lock = pinned()
    if bad := damaged(lock, folder):
        files = " ".join(str(folder / jar.file) for jar in bad)
        return Finding("jars", "fail", f"{len(bad)} damaged: {bad[0].file}", f"rm {files} && calve up")
    if missing := [jar for jar in lock if not present(jar, folder)]:
        size = sum(jar.size_bytes for jar in missing) / 1e6
        detail = f"{len(missing)} of {len(lock)} to download, {size:,.0f} MB"
        return Finding("jars", "absent", detail, "calve up")
    return Finding("jars", "ok", f"{len(lock)}, checksums right")


def emulator(_root: Path) -> Finding:
    return _installed("aws emulator", aws.emulator(), "calve up")


def _installed(name: str, program: runtimes.Installation, fix: str) -> Finding:
    if program.is_ready:
        return Finding(name, "ok", "installed")
    return Finding(name, "absent", "not installed yet", fix)


def server(name: Server) -> Callable[[Path], Finding]:
    def check(root: Path) -> Finding:
        recorded = read_state(Layout(root).stack_file)
        if recorded is None:
            return Finding(name, "absent", "not up", "calve up")
        process = recorded.processes.get(name)
        if process is None or not alive(process):
            return Finding(name, "fail", "was started and is gone", "calve up")
        if not answers(recorded, name):
            return Finding(name, "fail", f"process {process.pid} does not answer", "calve down && calve up")
        return Finding(name, "ok", f"127.0.0.1:{recorded.ports[name]} (process {process.pid})")

    return check


Check = Callable[[Path], Finding]
CHECKS: dict[str, Check] = {"python": python, "java": java, "disk": disk, "memory": memory}
STACK_CHECKS: dict[str, Check] = {
    "loopback": loopback,
    "jars": jars,
    "aws emulator": emulator,
    "aws cdk": lambda _root: _installed("aws cdk", runtimes.cdk(), "calve deploy"),
}
STACK_CHECKS |= {name: server(name) for name in get_args(Server)}
