"""Apache Iceberg's sink for Kafka Connect, in a worker of Kafka's own.

Its tasks, consumer and commits are set for throughput: two tasks, large polls, a commit each second, so that waiting for one is
not what is measured. A worker gets a connector for each lap. It fills no more of `_kafka` than its own transform has.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.jars import connect_class_path
from bench.metering import Metered, metered
from bench.scene import MEMORY, Follower, Lap, Run, Scene, begun, run_of
from calve.config.job import Job
from cli.embedded.layout import Layout
from cli.embedded.processes import HOST, call, free_ports
from cli.embedded.runtimes import find_java
from cli.embedded.stack import environment
from cli.kafka import client_properties
from cli.lake import open_catalog
from cli.run.datagen.produce import create_topic

LOOK_S = 0.25
PATIENCE_S = 180
TASKS = 2
COMMIT_MS, TIMEOUT_MS = 1_000, 5_000
"""A task that starts late misses the first call for a commit; by default the others wait half a minute for its answer."""
JVM = (f"-Xmx{MEMORY}", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


@dataclass(frozen=True, slots=True)
class Connect(Follower):
    """A worker in a process of its own."""

    def run(self, scene: Scene, laps: Sequence[Lap]) -> Run:
        with worker(scene, laps[0].table) as (running, port):
            readings = [begun(running)]
            ready(port)
            readings.append(running.read())
            for lap in laps:
                add(scene, port, lap.topic.name, lap.table)
                wait(_done(scene.job, port, lap.table, lap.topic.count), f"table {lap.table}")
                readings.append(running.read())
                ask(port, "DELETE", f"connectors/{lap.table}")
            return run_of(readings, running)

    @contextmanager
    def following(self, scene: Scene, topic: str, table: str, _round_s: float) -> Iterator[Metered]:
        with worker(scene, table) as (running, port):
            ready(port)
            add(scene, port, topic, table)
            wait(_done(scene.job, port, table, 0), f"table {table}")
            yield running


@contextmanager
def worker(scene: Scene, log: str) -> Iterator[tuple[Metered, int]]:
    """A worker on its way up, and its port."""
    (port,) = free_ports(1)
    name = f"connect-{uuid.uuid4().hex[:8]}"
    file = scene.folder / f"{name}.properties"
    file.write_text(
        "".join(f"{key}={value}\n" for key, value in worker_settings(scene.job, name, port).items())
    )
    java = find_java(Layout(scene.stack.root))
    options = [*JVM, "-cp", connect_class_path(scene.stack.root)]
    command = [java.executable, *options, "org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
    with metered(
        command, environment(scene.stack), stack=scene.stack, log=scene.log(log), marks=False
    ) as running:
        yield running, port


def add(scene: Scene, port: int, topic: str, table: str) -> None:
    """Give the worker a connector for a table, with a control topic of its own."""
    control = control_topic(scene, table)
    ask(port, "PUT", f"connectors/{table}/config", connector_settings(scene, topic, table, control))


def ready(port: int) -> None:
    """Wait until the worker takes connectors."""
    wait(lambda: call(f"http://{HOST}:{port}/connectors") == 200, "the worker")


def control_topic(scene: Scene, table: str) -> str:
    """A new control topic for a table's connector."""
    control = f"{table}-control"
    create_topic(control, 1, client_properties(scene.job.kafka, scene.job.lake.region))
    return control


def worker_settings(job: Job, worker: str, port: int) -> dict[str, object]:
    topics = {
        f"{kind}.storage.{key}": value
        for kind in ("config", "offset", "status")
        for key, value in (("topic", f"{worker}-{kind}"), ("replication.factor", 1))
    }
    return {
        "bootstrap.servers": job.kafka.bootstrap_servers,
        "group.id": worker,
        "listeners": f"http://{HOST}:{port}",
        "plugin.discovery": "service_load",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
        "offset.flush.interval.ms": 10_000,
        "connector.client.config.override.policy": "All",
        **topics,
    }


def connector_settings(scene: Scene, topic: str, table: str, control: str) -> dict[str, object]:
    lake, registry = scene.job.lake, scene.stack.registry_url.replace("/ccompat/v7", "/registry/v2")
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": TASKS,
        "topics": topic,
        "iceberg.tables": f"{lake.database}.{table}",
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": COMMIT_MS,
        "iceberg.control.commit.timeout-ms": TIMEOUT_MS,
        "iceberg.catalog.catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
        "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "iceberg.catalog.warehouse": lake.warehouse,
        "iceberg.catalog.client.region": lake.region,
        "iceberg.catalog.glue.endpoint": lake.endpoint,
        "iceberg.catalog.glue.skip-archive": "true",
        "iceberg.catalog.s3.endpoint": lake.endpoint,
        "iceberg.catalog.s3.path-style-access": "true",
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.max.poll.records": 10_000,
        "consumer.override.fetch.min.bytes": 100_000,
        "consumer.override.fetch.max.wait.ms": 100,
        "consumer.override.max.partition.fetch.bytes": 8_000_000,
        "transforms": "kafka",
        "transforms.kafka.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
        "transforms.kafka.field_name": "_kafka",
        "transforms.kafka.nested": "true",
        "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "value.converter.apicurio.registry.url": registry,
        "value.converter.apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
        "value.converter.apicurio.registry.use-id": "contentId",
    }


def _done(job: Job, port: int, table: str, count: int) -> Callable[[], bool]:
    """Whether all records are in the table; of an empty topic, whether the tasks run."""
    catalog = open_catalog(job.lake)

    def done() -> bool:
        states = _states(port, table)
        if "FAILED" in states:
            raise RuntimeError(f"a task of connector {table} has failed")
        if not count:
            return states == ["RUNNING"] * TASKS
        head = catalog.load_table((job.lake.database, table)).current_snapshot()
        return (
            head is not None and head.summary is not None and int(head.summary["total-records"] or 0) >= count
        )

    return done


def _states(port: int, connector: str) -> list[str]:
    try:
        found = ask(port, "GET", f"connectors/{connector}/status")
    except urllib.error.HTTPError:  # the worker has not heard of it yet
        return []
    return [each["state"] for each in found["tasks"]]


def wait(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} was not ready in {PATIENCE_S} s")
        time.sleep(LOOK_S)


def ask(port: int, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://{HOST}:{port}/{path}",
        method=method,
        data=None if body is None else json.dumps({k: str(v) for k, v in body.items()}).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        text = answer.read()
    found: dict[str, Any] = json.loads(text) if text else {}
    return found
