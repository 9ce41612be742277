"""Two principals for one job: one reads and describes, the other makes and writes output topics; neither can do both."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import pytest

from calve.config.job import Job, Table
from calve.config.publishing import Emit
from glue_jobs.ingest import run
from tests.integration.outputs.test_emit import records
from tests.integration.support.engine import DATABASE, Engine, everything
from tests.integration.support.servers.principals import READING, WRITING, User, scram


class Principals:
    """A topic with records, an output topic that does not exist yet, and who may do what with them."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.topic, self.output = engine.topic(partitions=1), f"out{uuid.uuid4().hex[:12]}"
        engine.produce(self.topic, 20)
        name = uuid.uuid4().hex[:8]
        self.ingest, self.emit = (User(engine.admin, f"{each}-{name}") for each in ("ingest", "emit"))
        self.ingest.make()
        self.emit.make()
        self.ingest.allow(self.topic, READING)
        self.emit.allow(self.output, WRITING)

    def drain(self, reader: User, writer: User | None = None, *, emit: bool = True) -> str:
        """The state of the table after a job of these principals."""
        table = Table(self.topic, self.topic, emit=Emit(self.output, partitions=1) if emit else None)
        emit_secret = writer.write(self.folder / "emit.json") if writer else None
        kafka = scram(self.engine.stack, reader.write(self.folder / "ingest.json"), emit_secret)
        job: Job = self.engine.job(table, kafka=kafka)
        return run(job, drain=True, stop=threading.Event())[f"{DATABASE}.{self.topic}"]


@pytest.fixture
def principals(engine: Engine, tmp_path: Path) -> Principals:
    return Principals(engine, tmp_path)


def told(capfd: pytest.CaptureFixture[str], topic: str) -> bool:
    written = "".join(capfd.readouterr())
    return "topic_forbidden" in written and f"does not let this job use topic {topic}" in written


def test_each_does_its_own_work(principals: Principals) -> None:
    """Reading takes no right to a group: calve keeps the position in the table."""
    engine = principals.engine
    assert principals.drain(principals.ingest, principals.emit) == "running"
    engine.produce(principals.topic, 5)
    assert principals.drain(principals.ingest, principals.emit) == "running"
    assert engine.offsets(principals.topic) == everything(25)
    assert len(records(engine, principals.output)) == 25


def test_who_reads_is_refused_the_output_topic(
    principals: Principals, capfd: pytest.CaptureFixture[str]
) -> None:
    assert principals.drain(principals.ingest) == "suspended"
    assert told(capfd, principals.output)
    principals.engine.create(principals.output, partitions=1)
    principals.ingest.allow(principals.output, ("CREATE", "DESCRIBE"))
    assert principals.drain(principals.ingest) == "suspended"
    assert told(capfd, principals.output)
    assert records(principals.engine, principals.output) == []
    assert principals.drain(principals.ingest, principals.emit) == "running"
    assert len(records(principals.engine, principals.output)) == 20


def test_who_writes_is_refused_the_topic_of_the_table(
    principals: Principals, capfd: pytest.CaptureFixture[str]
) -> None:
    assert principals.drain(principals.emit, emit=False) == "suspended"
    assert told(capfd, principals.topic)
    principals.emit.allow(principals.topic, ("DESCRIBE", "DESCRIBE_CONFIGS"))
    assert principals.drain(principals.emit, emit=False) == "suspended"
    assert told(capfd, principals.topic)
    assert principals.drain(principals.ingest, emit=False) == "running"
    assert principals.engine.offsets(principals.topic) == everything(20)
