"""The servers of the embedded stack: how each is configured, started, checked and removed. The registry is Apicurio."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from calve.errors import Fatal
from cli.embedded import aws, kafka, processes
from cli.embedded.layout import Layout
from cli.embedded.processes import HOST, call
from cli.embedded.runtimes import Java

REGISTRY_JVM = ["-Xms96m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
Server = Literal["kafka", "registry", "aws"]
SERVERS: tuple[Server, ...] = ("registry", "aws", "kafka")
READY_DEADLINE_S = 90.0


def registry_url(port: int) -> str:
    return f"http://{HOST}:{port}/apis/ccompat/v7"


def require_compatibility(port: int) -> None:
    """Make the registry refuse incompatible schemas, as Confluent's does by default."""
    status = call(f"{registry_url(port)}/config", method="PUT", body=b'{"compatibility":"BACKWARD"}')
    if status != 200:
        raise Fatal(f"the schema registry refused its compatibility level (HTTP {status})")


def configure_kafka(layout: Layout, recorded: processes.State, java: Java) -> None:
    """Write the broker's certificates and properties, and prepare its log."""
    folder = layout.run / "kafka"
    folder.mkdir(parents=True)
    _, store = kafka.write_certificates(folder)
    properties = folder / "kafka.properties"
    properties.touch(mode=0o600)
    properties.write_text(kafka.configuration(recorded, data=folder / "log", store=store))
    kafka.format_storage(
        java, jars=layout.jars / "kafka", properties=properties, cluster_id=recorded.cluster_id
    )


def launch(layout: Layout, recorded: processes.State, java: Java, server: Server) -> processes.State:
    """Start one server and record it; return the state with it."""
    folder = layout.run / server
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
    match server:
        case "kafka":
            command = kafka.command(java, jars=layout.jars / "kafka", properties=folder / "kafka.properties")
        case "registry":
            (runner,) = (layout.jars / "registry").glob("apicurio-registry-app-*-runner.jar")
            command = [java.executable, *REGISTRY_JVM, "-jar", str(runner)]
            environment |= {
                "QUARKUS_HTTP_HOST": HOST,
                "QUARKUS_HTTP_PORT": str(recorded.ports["registry"]),
                "QUARKUS_HTTP_ACCESS_LOG_ENABLED": "false",
                "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{folder}/registry",  # keeps schemas over restarts
            }
        case "aws":
            command = aws.command(layout)
            environment |= aws.environment(recorded.ports["aws"], folder=folder)
    log = layout.logs / f"{server}.log"
    with processes.signals_held():  # between the start and its record nothing may come
        process = processes.start(command, log=log, environment=environment, folder=folder)
        recorded = recorded.with_process(server, process)
        processes.write_state(layout.stack_file, recorded)
    return recorded


def wait_for(
    layout: Layout,
    recorded: processes.State,
    servers: Sequence[Server],
    on_ready: Callable[[str], None] = lambda _name: None,
) -> None:
    """Wait until the servers answer; raise Fatal with the end of the log of a server that does not."""
    starting = [
        processes.Starting(
            name, recorded.processes[name], partial(answers, recorded, name), layout.logs / f"{name}.log"
        )
        for name in servers
    ]
    processes.wait_until_ready(starting, deadline_s=READY_DEADLINE_S, on_ready=on_ready)


def answers(recorded: processes.State, server: Server) -> bool:
    match server:
        case "kafka":
            return kafka.answers(f"{HOST}:{recorded.ports['kafka']}", recorded.cluster_id)
        case "registry":
            return call(f"{registry_url(recorded.ports['registry'])}/subjects") == 200
        case "aws":
            return aws.answers(recorded.ports["aws"])


def clear(layout: Layout) -> None:
    """Stop every recorded server and delete all their data."""
    recorded = processes.read_state(layout.stack_file)
    with processes.signals_held():
        for process in recorded.processes.values() if recorded else ():
            processes.stop(process)
        shutil.rmtree(layout.run, ignore_errors=True)
        layout.stack_file.unlink(missing_ok=True)
