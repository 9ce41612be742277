"""Spark's own server for remote sessions, on this machine's loopback, and the one client that asks it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from calve.names import TableName
from cli.embedded import processes
from cli.embedded.layout import CHECKOUT
from cli.embedded.processes import HOST, free_ports
from cli.embedded.stack import Stack, environment
from stacks.jobs.jars import installed, jar_folder
from tests.standins.wheels import wheels

CLIENT = Path(__file__).with_name("client.txt")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
DEADLINE_S = 120.0


@contextmanager
def spark_connect(stack: Stack, folder: Path) -> Iterator[Callable[[TableName], list[str]]]:
    """What reads a table by a remote session, as long as the block runs. `folder`: for logs."""
    (port,) = free_ports(1)
    settings = [f"--conf={name}={value}" for name, value in _settings(stack, port).items()]
    command = [str(installed("pyspark") / "bin" / "spark-submit"), "--master=local[1]", *settings]
    command += [f"--class={SERVER}", "spark-internal"]
    log = folder / "server.log"
    server = processes.start(command, log=log, environment=environment(stack), folder=folder)
    try:
        starting = processes.Starting("Spark Connect", server, lambda: _listens(port), log)
        processes.wait_until_ready([starting], deadline_s=DEADLINE_S)
        with _client(f"sc://{HOST}:{port}", folder) as read:
            yield read
    finally:
        processes.stop(server)


@contextmanager
def _client(url: str, folder: Path) -> Iterator[Callable[[TableName], list[str]]]:
    """Without the server's Java and its environment."""
    packages = wheels(CLIENT, folder / "pip.log")
    paths = {"PYTHONPATH": f"{CHECKOUT}{os.pathsep}{packages}"}
    log = folder / "client.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.standins.spark_connect", url],
            cwd=folder,
            env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | paths,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with process:
        asked, answers = process.stdin, process.stdout
        assert asked
        assert answers

        def read(name: TableName) -> list[str]:
            asked.write(f"glue.{name.database}.{name.table}\n")
            asked.flush()
            answer = answers.readline()
            assert answer, processes.tail(log)
            found: list[str] = json.loads(answer)
            return found

        try:
            yield read
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((HOST, port)) == 0


def _settings(stack: Stack, port: int) -> dict[str, str]:
    """The catalog as docs/query.md has it, in the emulator."""
    return {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": HOST,
        "spark.driver.extraClassPath": str(jar_folder() / "spark" / "*"),
        "spark.driver.memory": "1g",
        "spark.sql.catalog.glue": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.glue.cache-enabled": "false",
        "spark.sql.catalog.glue.client.region": stack.region,
        "spark.sql.catalog.glue.glue.endpoint": stack.aws_endpoint,
        "spark.sql.catalog.glue.s3.endpoint": stack.aws_endpoint,
        "spark.sql.catalog.glue.s3.path-style-access": "true",
        "spark.sql.catalog.glue.type": "glue",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
