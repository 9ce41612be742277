"""The servers of the embedded stack: how each is configured, launched, asked and cleared away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from cli.embedded import aws, kafka, processes, registry, state
from cli.embedded.java import Java
from cli.embedded.layout import Layout
from cli.embedded.loopback import HOST

Server = Literal["kafka", "registry", "aws"]
SERVERS: tuple[Server, ...] = ("registry", "aws", "kafka")
READY_DEADLINE_S = 90.0


def configure_kafka(layout: Layout, recorded: state.State, java: Java) -> None:
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


def launch(layout: Layout, recorded: state.State, java: Java, server: Server) -> state.State:
    """Start one server and record it; return the state with it."""
    folder = layout.run / server
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
    match server:
        case "kafka":
            command = kafka.command(java, jars=layout.jars / "kafka", properties=folder / "kafka.properties")
        case "registry":
            command = registry.command(java, jars=layout.jars / "registry")
            environment |= registry.environment(recorded.ports["registry"], data=folder)
        case "aws":
            command = aws.command(layout)
            environment |= aws.environment(recorded.ports["aws"], folder=folder)
    log = layout.logs / f"{server}.log"
    with processes.signals_held():  # between the start and its record nothing may come
        process = processes.start(command, log=log, environment=environment, folder=folder)
        recorded = recorded.with_process(server, process)
        state.write(layout.stack_file, recorded)
    return recorded


def wait_for(
    layout: Layout,
    recorded: state.State,
    servers: Sequence[Server],
    on_ready: Callable[[str], None] = lambda _name: None,
) -> None:
    """Wait until the servers answer; raise Fatal with the end of the log of one that does not."""
    starting = [
        processes.Starting(
            name, recorded.processes[name], partial(answers, recorded, name), layout.logs / f"{name}.log"
        )
        for name in servers
    ]
    processes.wait_until_ready(starting, deadline_s=READY_DEADLINE_S, on_ready=on_ready)


def answers(recorded: state.State, server: Server) -> bool:
    """Tell whether one server serves requests."""
    match server:
        case "kafka":
            return kafka.answers(f"{HOST}:{recorded.ports['kafka']}", recorded.cluster_id)
        case "registry":
            return registry.answers(recorded.ports["registry"])
        case "aws":
            return aws.answers(recorded.ports["aws"])


def clear(layout: Layout) -> None:
    """Stop every recorded server and drop all their data."""
    recorded = state.read(layout.stack_file)
    with processes.signals_held():
        for process in recorded.processes.values() if recorded else ():
            processes.stop(process)
        shutil.rmtree(layout.run, ignore_errors=True)
        layout.stack_file.unlink(missing_ok=True)
