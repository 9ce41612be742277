"""The catalog as a process of its own: downloads and compiles what it takes, once, and becomes the Java that serves it.

What it knows is in the folder in which it is started.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

from calve.errors import Fatal
from cli.embedded import aws
from cli.embedded.layout import Layout
from cli.embedded.runtimes import Java, find_java
from stacks.jobs.jars import jar_folder, pinned, present, retrieve

SERVER = "org.apache.iceberg.rest.LoopbackCatalogServer"
JVM = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
SOURCES = Path(__file__).parent
LOCK = SOURCES / "jars.lock"
OF_PYSPARK = (
    *("avro-1", "hadoop-client-", "jackson-annotations-", "jackson-core-2", "jackson-databind-"),
    *("log4j-api-", "log4j-core-", "log4j-slf4j2-", "slf4j-api-", "RoaringBitmap-"),
)
COMPILE_DEADLINE_S = 60


def become_the_server(layout: Layout, port: int, endpoint: str) -> None:
    if missing := [jar for jar in pinned(LOCK.read_text()) if not present(jar, jar_folder())]:
        retrieve(missing, jar_folder())
    java = find_java(layout)
    classes = f"{compiled(layout, java)}:{class_path(layout)}"
    arguments = [*command(java), "-cp", classes, SERVER]
    os.execve(arguments[0], arguments, os.environ | properties(port, endpoint))


def command(java: Java) -> list[str]:
    """The beginning of the server's command line."""
    return [java.executable, *JVM]


def properties(port: int, endpoint: str) -> dict[str, str]:
    """The catalog's properties, as the server takes them: `__` stands for a hyphen, `_` for a dot."""
    return {
        "AWS_ACCESS_KEY_ID": aws.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": aws.SECRET_KEY,
        "AWS_REGION": aws.REGION,
        "CATALOG_CATALOG__IMPL": "calve.OverwritingCatalog",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_REST_PORT": str(port),
        "CATALOG_S3_ENDPOINT": endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_URI": f"jdbc:sqlite:{Path.cwd()}/catalog.db",
        "CATALOG_WAREHOUSE": f"s3://{aws.BUCKET}/rest_catalog",
    }


def class_path(layout: Layout) -> str:
    """The server's jars, and what it shares with Spark."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise Fatal("PySpark is not there", fix="pip install -r requirements.txt")
    shared = (Path(pyspark.origin).parent / "jars").glob("*.jar")
    found = [
        *sorted((jar_folder() / "rest_catalog").glob("*.jar")),
        *sorted((jar_folder() / "spark").glob("iceberg-aws-bundle-*.jar")),
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
        (compiler,) = (jar_folder() / "rest_catalog").glob("ecj-*.jar")
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


parser = argparse.ArgumentParser(prog="python -m tests.standins.rest_catalog", description=__doc__)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--aws", required=True, help="the emulator, in which the tables' files are")
parser.add_argument(
    "--root", type=Path, required=True, help="the stack's project, which has the server's jars"
)
options = parser.parse_args()
become_the_server(Layout(options.root), options.port, options.aws)
