"""PostgreSQL of Zonky's binaries, and Kafka Connect with Debezium's connector and Apicurio's converter to Avro.

All of them come from Maven, pinned by jars.lock. Nothing listens beyond loopback.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pg8000.dbapi

from calve.errors import Fatal
from cli.embedded.layout import Layout
from cli.embedded.processes import HOST, free_ports, tail
from cli.embedded.runtimes import find_java
from cli.embedded.stack import Stack
from stacks.jobs.jars import jar_folder, pinned, present, retrieve

LOCK = Path(__file__).with_name("jars.lock")
USER, NAME = "calve", "shop"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64v8"}
SERVER = ("-c", "wal_level=logical", "-c", "fsync=off", "-h", HOST, "-k", "")
JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
WORKER = "org.apache.kafka.connect.cli.ConnectStandalone"
CONVERTER = {
    "": "io.apicurio.registry.utils.converter.AvroConverter",
    ".apicurio.registry.auto-register": "true",
    ".apicurio.registry.find-latest": "false",
    ".apicurio.registry.headers.enabled": "false",
    ".apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
    ".apicurio.registry.use-id": "contentId",
}
"""Confluent's frame, and a subject for each topic."""
DEADLINE_S = 60.0


@dataclass
class Database:
    """A database in a folder of its own, and its connector. `config`: the connector's, without the database's address."""

    stack: Stack
    folder: Path
    config: Mapping[str, str]
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    _postgres: subprocess.Popen[bytes] | None = None
    _connect: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self.ports[0]

    def begin(self) -> None:
        """Install and start PostgreSQL, with an empty database."""
        _install(self.folder)
        data = self.folder / "data"
        data.mkdir()
        if self._owner:
            shutil.chown(data, *self._owner.values())
        options = ["-D", str(data), "-U", USER, "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync"]
        self._run("initdb", *options)
        self.start_postgres()
        with self.connection("postgres") as connection:
            connection.cursor().execute(f"CREATE DATABASE {NAME}")

    def start_postgres(self) -> None:
        command = [*self._program("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *SERVER]
        self._postgres = self._started(command, "postgres", **self._owner)
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                with self.connection("postgres"):
                    return
            except (pg8000.dbapi.InterfaceError, pg8000.dbapi.DatabaseError):  # also: it is starting up
                if self._postgres.poll() is not None or time.monotonic() > end:
                    raise Fatal(f"PostgreSQL did not start\n{tail(self.folder / 'postgres.log')}") from None
                time.sleep(0.1)

    @contextmanager
    def connection(self, name: str = NAME) -> Iterator[Any]:
        """A connection that commits each statement."""
        found = pg8000.dbapi.connect(USER, host=HOST, port=self.port, database=name, timeout=DEADLINE_S)
        found.autocommit = True
        try:
            yield found
        finally:
            found.close()

    def start_connector(self) -> None:
        """Start Kafka Connect with the connector, which goes on from the offsets that it has stored."""
        worker, connector = self.folder / "worker.properties", self.folder / "connector.json"
        worker.write_text("".join(f"{name}={value}\n" for name, value in self._worker().items()))
        here = {"database.hostname": HOST, "database.port": str(self.port), "database.user": USER}
        here |= {"database.password": USER, "database.dbname": NAME}
        connector.write_text(json.dumps({"name": NAME, "config": {**self.config, **here}}))
        java = find_java(Layout(self.stack.root)).executable
        classes = ":".join(map(str, sorted((jar_folder() / "debezium").glob("*.jar"))))
        self._connect = self._started(
            [java, *JVM, "-cp", classes, WORKER, str(worker), str(connector)], "connect"
        )

    def kill_connector(self) -> None:
        """SIGKILL: what the connector sent last comes again, once it is started."""
        assert self._connect is not None
        self._connect.kill()
        self._connect.wait(DEADLINE_S)

    def kill_postgres(self) -> None:
        """As a crash: its next start recovers."""
        assert self._postgres is not None
        self._postgres.send_signal(signal.SIGQUIT)
        self._postgres.wait(DEADLINE_S)

    def end(self) -> None:
        for process, how in ((self._connect, signal.SIGKILL), (self._postgres, signal.SIGQUIT)):
            if process is not None and process.poll() is None:
                process.send_signal(how)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(DEADLINE_S)

    def _worker(self) -> dict[str, str]:
        registry = self.stack.registry_url.replace("/apis/ccompat/v7", "/apis/registry/v2")
        converters = {
            f"{part}.converter{name}": value
            for part in ("key", "value")
            for name, value in {**CONVERTER, ".apicurio.registry.url": registry}.items()
        }
        return converters | {
            "bootstrap.servers": self.stack.bootstrap_servers,
            "listeners": f"http://{HOST}:{self.ports[1]}",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "only_scan",
        }

    def _started(self, command: list[str], name: str, **owner: Any) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **owner,
            )

    def _run(self, program: str, *options: str) -> None:
        run = subprocess.run(
            [*self._program(program), *options],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            **self._owner,
        )
        if run.returncode:
            raise Fatal(f"{program} failed\n{run.stderr}")

    def _program(self, name: str) -> list[str]:
        return [str(self.folder / "postgres" / "bin" / name)]

    @property
    def _owner(self) -> dict[str, Any]:
        """PostgreSQL refuses to run as root."""
        return {"user": "nobody", "group": 65534} if os.geteuid() == 0 else {}


@contextmanager
def database(stack: Stack, config: Mapping[str, str]) -> Iterator[Database]:
    """A database as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="calve-database-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = Database(stack, folder, config)
        try:
            made.begin()
            yield made
        finally:
            made.end()


def _install(folder: Path) -> None:
    """Download what is missing, and unpack PostgreSQL into the folder: root's cache is not open to its user."""
    machine = MACHINES.get(platform.machine())
    if machine is None or platform.system() != "Linux":
        raise Fatal(f"there is no PostgreSQL for {platform.system()} on {platform.machine()} here")
    wanted = [each for each in pinned(LOCK.read_text()) if each.class_path in ("debezium", machine)]
    if missing := [each for each in wanted if not present(each, jar_folder())]:
        retrieve(missing, jar_folder())
    (binaries,) = (jar_folder() / machine).glob("embedded-postgres-binaries-*.jar")
    with zipfile.ZipFile(binaries) as jar:
        (name,) = (each for each in jar.namelist() if each.endswith(".txz"))
        with jar.open(name) as content, tarfile.open(fileobj=content, mode="r:xz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(folder / "postgres")
