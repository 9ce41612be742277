"""Running the job's code on local Spark: the environment that Glue gives it in AWS."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from calve.errors import Fatal
from cli.embedded.layout import Layout, project_root
from cli.embedded.processes import HOST, allow_open_files, silent
from cli.embedded.runtimes import find_java
from cli.embedded.stack import Stack, current, environment, spark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from calve.config.job import Job

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
QUICK_START = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xshare:auto"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""For short runs: halves the time to the first commit, and the peak throughput. Other collectors take a seventh more CPU.

With one tier the JVM reserves 48 MB for code by default. Spark fills that in minutes, and a third of its time goes to sweeping.
Verifying the byte code of 15,000 classes would take a second; the jars' checksums were verified.
"""


def spark_environment(
    stack: Stack | None,
    *,
    memory: str = "2g",
    quick: bool = False,
    jars: Sequence[Path] | None = None,
    conf: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a child process that runs a job: jars, memory, and settings for the JVM's start.

    `jars`: by default those of this release. `more`: settings of `calve.yaml`.
    """
    allow_open_files()
    settings = dict(conf or {}) | dict(more or {})
    if quick:
        settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {QUICK_START}".strip()
    settings["spark.driver.bindAddress"] = "127.0.0.1"
    arguments = ["--master", "local[*]", "--driver-memory", memory]
    arguments += ["--jars", ",".join(map(str, spark_jars() if jars is None else jars))]
    for key, value in settings.items():
        arguments += ["--conf", f"{key}={value}"]
    base = environment(stack) if stack else dict(os.environ)
    return base | {"PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"])}


def parse_conf(text: str) -> dict[str, str]:
    """The settings of Glue's one `--conf` argument, which chains them: `k=v --conf k2=v2`."""
    pairs = [each.partition("=") for each in re.split(r"(?:^|\s)\s*--conf\s+", text) if each.strip()]
    return {key.strip(): value.strip() for key, _, value in pairs}


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For a few records, compiling expressions takes longer than interpreting them."""


def local_session(job: Job) -> SparkSession:
    """A session of the job in this process, without the JVM's output.

    It ends after the process: to stop it would take a second.
    """
    from glue_jobs.process.session import spark_session

    root = project_root()
    os.environ.update(spark_environment(current(root), memory="1g", quick=True) | _here(root))
    spark = _started(lambda: spark_session(job))
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    return spark


@contextmanager
def bare_session() -> Iterator[SparkSession]:
    """A session of Spark SQL only in this process, without the JVM's output."""
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment(None, memory="1g", quick=True, jars=()) | _here(project_root()))
    quiet = SparkSession.builder.config("spark.ui.enabled", "false")
    spark = _started(quiet.config("spark.ui.showConsoleProgress", "false").getOrCreate)
    try:
        yield spark
    finally:
        spark.stop()


def _here(root: Path) -> dict[str, str]:
    """What a session needs without the embedded stack, on a machine with any name."""
    return {"JAVA_HOME": str(find_java(Layout(root)).home), "SPARK_LOCAL_IP": HOST}


def _started(start: Callable[[], SparkSession]) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError

    with silent():
        try:
            return start()
        except (OSError, PySparkRuntimeError) as error:
            raise Fatal(f"Spark does not start: {error}", fix="calve doctor") from None
