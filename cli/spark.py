"""Running the deployed job's code on local Spark: the environment that Glue gives it in AWS."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calve.spark_conf import java_options
from cli.embedded.stack import environment, spark_jars

if TYPE_CHECKING:
    from cli.embedded.stack import Stack

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -Xshare:auto"
"""Halves the time to the first commit and the peak of the throughput: for short runs.

With one tier the JVM reserves 48 MB for code. Spark fills that in minutes, and then a third of its time goes into sweeping it.
"""


def spark_environment(
    root: Path,
    stack: Stack | None,
    *,
    memory: str = "2g",
    quick: bool = False,
    jars: Sequence[Path] | None = None,
    conf: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a child process that runs a job: jars, memory, and settings that the JVM must be started with.

    By default these are the jars of this release, and Avro's limits.
    """
    settings = dict(conf if conf is not None else {JAVA_OPTIONS: java_options()})
    if quick:
        settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {QUICK_START}".strip()
    settings["spark.driver.bindAddress"] = "127.0.0.1"
    arguments = ["--master", "local[*]", "--driver-memory", memory]
    arguments += ["--jars", ",".join(map(str, spark_jars(root) if jars is None else jars))]
    for key, value in settings.items():
        arguments += ["--conf", f"{key}={value}"]
    base = environment(stack) if stack else dict(os.environ)
    return base | {"PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"])}
