"""Starts, finds and stops the embedded stack, and each of its servers. The registry is Apicurio.

Kafka's log and the emulator's memory describe each other, so they are always deleted together. If one server has crashed, the
whole stack is stopped, wiped and started again.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from calve.errors import Fatal
from cli.embedded import aws, kafka, processes
from cli.embedded.layout import Layout
from cli.embedded.processes import HOST, call, free_ports, no_proxy
from cli.embedded.runtimes import Java, find_java
from cli.progress import Progress
from stacks.base.downloads import one_at_a_time
from stacks.jobs.jars import installed, jar_folder, pinned, present, retrieve

REGISTRY_JVM = ["-Xms96m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
Server = Literal["kafka", "registry", "aws"]
SERVERS: tuple[Server, ...] = ("registry", "aws", "kafka")
READY_DEADLINE_S = 90.0


def registry_url(port: int) -> str:
    return f"http://{HOST}:{port}/apis/ccompat/v7"


def configure_kafka(layout: Layout, recorded: processes.State, java: Java) -> None:
    """Write the broker's certificates and properties, and prepare its log."""
    folder = layout.run / "kafka"
    folder.mkdir(parents=True)
    _, store = kafka.write_certificates(folder)
    properties = folder / "kafka.properties"
    properties.touch(mode=0o600)
    properties.write_text(kafka.configuration(recorded, data=folder / "log", store=store))
    kafka.format_storage(
        java, jars=jar_folder() / "kafka", properties=properties, cluster_id=recorded.cluster_id
    )


def launch(layout: Layout, recorded: processes.State, java: Java, server: Server) -> processes.State:
    """Start one server and record it; return the state with it."""
    folder = layout.run / server
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
    match server:
        case "kafka":
            properties = str(folder / "kafka.properties")
            command = [*kafka.program(java, jar_folder() / "kafka"), "kafka.Kafka", properties]
        case "registry":
            (runner,) = (jar_folder() / "registry").glob("apicurio-registry-app-*-runner.jar")
            command = [java.executable, *REGISTRY_JVM, "-jar", str(runner)]
            environment |= {
                "QUARKUS_HTTP_HOST": HOST,
                "QUARKUS_HTTP_PORT": str(recorded.ports["registry"]),
                "QUARKUS_HTTP_ACCESS_LOG_ENABLED": "false",
                "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{folder}/registry",  # keeps schemas over restarts
            }
        case "aws":
            command = [str(aws.emulator().folder / "bin" / "python"), "-P", str(aws.WRAPPER)]
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
    on_ready: Callable[[str], object] = lambda _name: None,
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
            return call(f"{aws.url(recorded.ports['aws'])}/_ministack/health") == 200


def clear(layout: Layout) -> None:
    """Stop every recorded server and delete all their data."""
    recorded = processes.read_state(layout.stack_file)
    with processes.signals_held():
        if recorded:
            processes.stop(*recorded.processes.values())
        shutil.rmtree(layout.run, ignore_errors=True)
        layout.stack_file.unlink(missing_ok=True)


PORTS = ("kafka", "kafka_ssl", "kafka_sasl", "kafka_controller", "registry", "aws")


@dataclass(frozen=True, slots=True)
class Stack:
    """The endpoints of a running stack."""

    root: Path
    bootstrap_servers: str
    ssl_bootstrap_servers: str
    sasl_bootstrap_servers: str
    ca_file: Path
    sasl_user: str
    sasl_password: str = field(repr=False)
    registry_url: str
    aws_endpoint: str
    bucket: str
    region: str
    logs: Path


def up(root: Path, progress: Progress) -> Stack:
    """Return the running stack, or start one; nothing stays behind if the start ends early."""
    layout = Layout(root)
    with processes.termination_as_exit(), exclusive(layout, progress):
        prepare(layout, progress)
        recorded = processes.read_state(layout.stack_file)
        if recorded and recorded.ready and all(health(recorded).values()):
            return _stack(root, recorded)
        clear(layout)
        try:
            return _stack(root, _start(layout, progress))
        except BaseException:
            clear(layout)
            raise


def current(root: Path) -> Stack | None:
    """Return the stack that runs here, if any, without a request to its servers."""
    recorded = processes.read_state(Layout(root).stack_file)
    if recorded is None or not recorded.ready:
        return None
    return _stack(root, recorded) if all(map(processes.alive, recorded.processes.values())) else None


def down(root: Path) -> bool:
    """Stop exactly the recorded processes and delete their data; return whether there were any."""
    layout = Layout(root)
    with exclusive(layout):
        there = layout.stack_file.exists()
        clear(layout)
    return there


@contextmanager
def running(root: Path, progress: Progress, *, keep: bool = False) -> Iterator[Stack]:
    """Use the running stack, or one that ends with the block. With `keep` it stays, unless the block is interrupted."""
    before = current(root)
    stack = up(root, progress)
    try:
        with processes.termination_as_exit():
            yield stack
    except (KeyboardInterrupt, SystemExit):
        keep = False
        raise
    finally:
        if not keep and stack != before:
            down(root)


def health(recorded: processes.State) -> dict[Server, bool]:
    return {
        name: name in recorded.processes
        and processes.alive(recorded.processes[name])
        and answers(recorded, name)
        for name in SERVERS
    }


def environment(stack: Stack) -> dict[str, str]:
    """Return the whole environment of a child process that runs Spark or an AWS client against this stack.

    It leaves out the user's own AWS profile, Spark, and proxies for this machine.
    """
    java = find_java(Layout(stack.root))
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "SPARK_")) and name not in ("PYTHONPATH", "PYTHONHOME")
    }
    return kept | {
        "AWS_ACCESS_KEY_ID": aws.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": aws.SECRET_KEY,
        "AWS_REGION": stack.region,
        "AWS_DEFAULT_REGION": stack.region,
        "AWS_ENDPOINT_URL": stack.aws_endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        # The emulator computes Arrow's CRC64 in Python: 1.5 s for 16 MB.
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
        **no_proxy(),
    }


def spark_jars() -> list[Path]:
    """The jars that Spark needs beside its own. Raises ModuleNotFoundError: there is no Spark."""
    folder = jar_folder()
    installed("pyspark")
    return [folder / jar.file for jar in pinned() if jar.class_path == "spark"]


def prepare(layout: Layout, progress: Progress) -> None:
    """Download and install what is missing of the servers."""
    folder = jar_folder()
    with one_at_a_time("jars"):
        if wanted := [jar for jar in pinned() if not present(jar, folder)]:
            total = sum(jar.size_bytes for jar in wanted)
            with progress.task("downloading jars", total=total, unit="bytes") as task:
                retrieve(wanted, folder, task.update)
    aws.install(layout, progress)


def _start(layout: Layout, progress: Progress) -> processes.State:
    java = find_java(layout)
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    recorded = processes.State(kafka.new_cluster_id(), secrets.token_urlsafe(18), ports)
    processes.write_state(layout.stack_file, recorded)
    with progress.task("starting Kafka, registry, AWS", total=len(SERVERS)) as task:
        for server in SERVERS:
            if server == "kafka":  # the others start while its storage is formatted
                configure_kafka(layout, recorded, java)
            recorded = launch(layout, recorded, java, server)
        wait_for(layout, recorded, SERVERS, lambda name: task.update(task.done + 1, note=f"{name} up"))
        kafka.add_scram_user(recorded)
        # The registry refuses incompatible schemas, as Confluent's does by default.
        compatibility = f"{registry_url(ports['registry'])}/config"
        if (status := call(compatibility, method="PUT", body=b'{"compatibility":"BACKWARD"}')) != 200:
            raise Fatal(f"the schema registry refused its compatibility level (HTTP {status})")
        aws.client("s3", aws.url(ports["aws"])).create_bucket(Bucket=aws.BUCKET)
    recorded = replace(recorded, ready=True)
    processes.write_state(layout.stack_file, recorded)
    return recorded


def _stack(root: Path, recorded: processes.State) -> Stack:
    layout = Layout(root)
    ports = recorded.ports
    return Stack(
        root=root,
        bootstrap_servers=f"{HOST}:{ports['kafka']}",
        ssl_bootstrap_servers=f"{HOST}:{ports['kafka_ssl']}",
        sasl_bootstrap_servers=f"{HOST}:{ports['kafka_sasl']}",
        ca_file=layout.run / "kafka" / "ca.pem",
        sasl_user=recorded.sasl_user,
        sasl_password=recorded.sasl_password,
        registry_url=registry_url(ports["registry"]),
        aws_endpoint=aws.url(ports["aws"]),
        bucket=aws.BUCKET,
        region=aws.REGION,
        logs=layout.logs,
    )


@contextmanager
def exclusive(layout: Layout, progress: Progress | None = None) -> Iterator[None]:
    """Let only one command at a time start or stop the stack of this project."""
    layout.state.mkdir(parents=True, exist_ok=True)
    with layout.lock_file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.task("waiting for another calve up or down") if progress else nullcontext():
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
