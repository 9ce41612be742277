"""Running the deployed job's code on local Spark: the environment that Glue gives it in AWS."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from calve.spark_conf import java_options
from cli.embedded.stack import environment, spark_jars

if TYPE_CHECKING:
    from cli.embedded.stack import Stack

QUICK_START = "-XX:TieredStopAtLevel=1 -Xshare:auto"
"""Halves the time to the first commit and the peak of the throughput: for short runs."""


def spark_environment(
    root: Path, stack: Stack | None, *, memory: str = "2g", quick: bool = False
) -> dict[str, str]:
    """The environment of a child process that runs a job: jars, memory, and Avro's limits on the JVM's command line."""
    options = f"{java_options()} {QUICK_START}" if quick else java_options()
    arguments = [
        "--master",
        "local[*]",
        "--driver-memory",
        memory,
        "--jars",
        ",".join(map(str, spark_jars(root))),
        "--driver-java-options",
        options,
        "--conf",
        "spark.driver.bindAddress=127.0.0.1",
        "pyspark-shell",
    ]
    base = environment(stack) if stack else dict(os.environ)
    return base | {"PYSPARK_SUBMIT_ARGS": shlex.join(arguments)}
