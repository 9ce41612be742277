"""Apache Iceberg's sink for Kafka Connect, as the benchmark runs it, for a table that it makes itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench import jars
from bench.scene import Scene
from bench.systems.connect import ask, connector_settings, control_topic, ready, wait, worker
from calve.config.job import Job
from cli.embedded.stack import Stack
from cli.kafka import Cluster
from cli.progress import LineProgress

ROOT = Path(__file__).parents[2]
"""Where the benchmark's jars are."""
MADE = {"iceberg.tables.auto-create-enabled": "true"}
PLACES = {"transforms.kafka.field_name": "_kafka_metadata"}


@contextmanager
def sink(stack: Stack, job: Job, topic: str, folder: Path, *, places: bool) -> Iterator[None]:
    """A connector that fills the table of a topic's name, as long as the block runs. places: rows have their offset."""
    jars.download(ROOT, LineProgress(lambda _: None))
    scene = Scene(replace(stack, root=ROOT), replace(job, tables=()), folder)
    with worker(scene, topic) as (_, port):
        ready(port)
        control = control_topic(scene, topic)
        wanted = connector_settings(scene, topic, topic, control) | MADE | PLACES
        if not places:
            wanted = {name: each for name, each in wanted.items() if not name.startswith("transforms")}
        ask(port, "PUT", f"connectors/{topic}/config", wanted)
        yield
        ask(port, "DELETE", f"connectors/{topic}")
        group, cluster = f"connect-{topic}", Cluster(job.kafka, job.lake.region)
        wait(lambda: not cluster.members(group), f"the end of group {group}")
