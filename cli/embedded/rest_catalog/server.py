"""An Iceberg REST catalog: the server of the Iceberg project's own tests, over the emulator's S3. Whoever needs one starts it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from calve.errors import Fatal
from cli.embedded import aws, processes
from cli.embedded.http import call
from cli.embedded.java import Java, find_java
from cli.embedded.layout import Layout
from cli.embedded.ports import HOST, free_ports

if TYPE_CHECKING:
    from cli.embedded.stack import Stack

JVM = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
SOURCES = Path(__file__).parent
OF_PYSPARK = (
    *("avro-1", "hadoop-client-", "jackson-annotations-", "jackson-core-2", "jackson-databind-"),
    *("log4j-api-", "log4j-core-", "log4j-slf4j2-", "slf4j-api-", "RoaringBitmap-"),
)
READY_DEADLINE_S = 60.0
COMPILE_DEADLINE_S = 60


@contextmanager
def running(stack: Stack, folder: Path) -> Iterator[str]:
    """A catalog of its own as long as the block runs; `folder` holds what it knows. Its address, without `/v1`."""
    (port,) = free_ports(1)
    process = start(stack, folder, port)
    try:
        ready = partial(answers, port)
        starting = processes.Starting("the REST catalog", process, ready, log_of(stack))
        processes.wait_until_ready([starting], deadline_s=READY_DEADLINE_S, on_ready=lambda _: None)
        yield f"http://{HOST}:{port}"
    finally:
        processes.stop(process)


def start(stack: Stack, folder: Path, port: int) -> processes.Process:
    """Start a catalog; whoever does stops it."""
    layout = Layout(stack.root)
    java = find_java(layout)
    return processes.start(
        [
            *command(java),
            "-cp",
            f"{compiled(layout, java)}:{class_path(layout)}",
            "org.apache.iceberg.rest.LoopbackCatalogServer",
        ],
        log=log_of(stack),
        environment=environment(port, stack, folder),
        folder=folder,
    )


def log_of(stack: Stack) -> Path:
    return Layout(stack.root).logs / "rest_catalog.log"


def command(java: Java) -> list[str]:
    """The beginning of the server's command line."""
    return [java.executable, *java.options, *JVM]


def environment(port: int, stack: Stack, folder: Path) -> dict[str, str]:
    """The catalog's properties, as the server takes them: `__` stands for a hyphen, `_` for a dot."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ} | {
        "AWS_ACCESS_KEY_ID": aws.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": aws.SECRET_KEY,
        "AWS_REGION": stack.region,
        "CATALOG_CATALOG__IMPL": "calve.OverwritingCatalog",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_REST_PORT": str(port),
        "CATALOG_S3_ENDPOINT": stack.aws_endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_WAREHOUSE": f"s3://{stack.bucket}/rest_catalog",
    }


def class_path(layout: Layout) -> str:
    """The server's jars, and what it shares with Spark."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise Fatal("PySpark is not there", fix="pip install -r requirements.txt")
    shared = (Path(pyspark.origin).parent / "jars").glob("*.jar")
    found = [
        *sorted((layout.jars / "rest_catalog").glob("*.jar")),
        *sorted((layout.jars / "spark").glob("iceberg-aws-bundle-*.jar")),
        *sorted(each for each in shared if each.name.startswith(OF_PYSPARK)),
    ]
    return ":".join(map(str, found))


def compiled(layout: Layout, java: Java) -> Path:
    """The folder with our own two classes: the JRE has no compiler, so Eclipse's makes them, once."""
    sources = sorted(SOURCES.glob("*.java"))
    content = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    folder = layout.state / "rest_catalog" / content
    done = folder / ".compiled"
    if not done.exists():
        (compiler,) = (layout.jars / "rest_catalog").glob("ecj-*.jar")
        arguments = ["-17", "-nowarn", "-cp", class_path(layout), "-d", str(folder), *map(str, sources)]
        run = subprocess.run(
            [*command(java), "-jar", str(compiler), *arguments],
            capture_output=True,
            text=True,
            timeout=COMPILE_DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
        if run.returncode:
            raise Fatal(
                f"the REST catalog could not be compiled\n{run.stderr or run.stdout}", fix="make clean"
            )
        done.touch()
    return folder


def answers(port: int) -> bool:
    """Tell whether the catalog serves requests."""
    return call(f"http://{HOST}:{port}/v1/config") == 200
