"""A broker of its own, and MirrorMaker's source connector in a worker of Kafka Connect. Nothing listens beyond loopback."""

from __future__ import annotations

import json
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cli.embedded import kafka, processes
from cli.embedded.layout import Layout
from cli.embedded.processes import HOST, free_ports
from cli.embedded.runtimes import find_java
from cli.embedded.stack import PORTS, configure_kafka, launch, wait_for
from stacks.jobs.jars import jar_folder, pinned, present, retrieve
from tests.standins.database import server as database

LOCK = Path(__file__).with_name("jars.lock")
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONVERTERS = {f"{part}.converter": BYTES for part in ("key", "value", "header")}
MIRROR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "former",
    "target.cluster.alias": "copy",
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "replication.factor": "1",
    "offset-syncs.topic.location": "target",
    "offset-syncs.topic.replication.factor": "1",
    "refresh.topics.interval.seconds": "1",
    "sync.topic.acls.enabled": "false",
    "tasks.max": "1",
    **CONVERTERS,
}
END_S = 30.0


@contextmanager
def second_cluster() -> Iterator[str]:
    """The bootstrap servers of a new, empty cluster, as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="calve-cluster-", ignore_cleanup_errors=True) as name:
        layout = Layout(Path(name))
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        state = processes.State(kafka.new_cluster_id(), secrets.token_urlsafe(18), ports)
        java = find_java(layout)
        configure_kafka(layout, state, java)
        state = launch(layout, state, java, "kafka")
        try:
            wait_for(layout, state, ["kafka"])
            yield f"{HOST}:{ports['kafka']}"
        finally:
            processes.stop(*state.processes.values())


@dataclass
class Mirror:
    """MirrorMaker from one cluster to another. It notes rarely how far it is, so a killed one copies records again."""

    source: str
    target: str
    topics: str
    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        connector, worker = self.folder / "mirror.json", self.folder / "mirror.properties"
        clusters = {
            "source.cluster.bootstrap.servers": self.source,
            "target.cluster.bootstrap.servers": self.target,
        }
        connector.write_text(
            json.dumps({"name": "mirror", "config": MIRROR | clusters | {"topics": self.topics}})
        )
        settings = CONVERTERS | {
            "bootstrap.servers": self.target,
            "listeners": f"http://{HOST}:{free_ports(1)[0]}",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "offset.flush.interval.ms": "2000",
            "plugin.discovery": "only_scan",
        }
        worker.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        classes = ":".join(map(str, _jars()))
        java = find_java(Layout(self.folder)).executable
        with (self.folder / "mirror.log").open("ab") as log:
            self._process = subprocess.Popen(
                [java, *database.JVM, "-cp", classes, database.WORKER, str(worker), str(connector)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_S)


@contextmanager
def mirror(source: str, target: str, topics: str) -> Iterator[Mirror]:
    """A MirrorMaker that runs, as long as the block does."""
    with tempfile.TemporaryDirectory(prefix="calve-mirror-", ignore_cleanup_errors=True) as name:
        made = Mirror(source, target, topics, Path(name))
        made.start()
        try:
            yield made
        finally:
            made.kill()


def _jars() -> list[Path]:
    wanted = [each for each in pinned(database.LOCK.read_text()) if each.class_path == "debezium"]
    wanted += pinned(LOCK.read_text())
    if missing := [each for each in wanted if not present(each, jar_folder())]:
        retrieve(missing, jar_folder())
    return [jar_folder() / each.file for each in wanted]
