"""The start and end of the job scripts: settings, Spark session, and a check that hostile bytes cannot harm the JVMs.

Values known only at deployment are separate arguments and override the settings.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from calve.config.job import Job, Lake
from calve.config.spark_conf import CATALOG, spark_conf
from calve.errors import CalveError, ConfigError
from calve.log import event
from calve.secrets import catalog_credential
from glue_jobs.process import faults
from glue_jobs.process.java import java_class, remember_names

VALUE_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark loggers that print values of records when an expression fails, even if the error is handled."""


Work = Callable[[Job, argparse.Namespace, SparkSession, threading.Event], tuple[dict[str, str], bool]]
"""A script's work, until it is done or the event is set: the states of tables, and whether the run has failed."""


def run_script(read: Callable[[], tuple[Job, argparse.Namespace]], work: Work) -> int:
    """Do the work of a script by its arguments. Exit code 0; 1 if it failed; 2 if the settings are invalid.

    SIGTERM and Ctrl-C ask it to stop.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        job, options = read()
        if fault := os.environ.get("CALVE_FAULT"):
            faults.arm(fault)
        spark = spark_session(job)
        signal.signal(signal.SIGINT, lambda *_: stop.set())  # PySpark takes it when the session is made
        states, failed = work(job, options, spark, stop)
    except CalveError as error:
        event("job.failed", reason=error.message, fix=error.fix)
        return 2 if isinstance(error, ConfigError) else 1
    event("job.ended", job=job.job, states=states)
    return int(failed)


def credential(lake: Lake) -> dict[str, str]:
    """The setting of a REST catalog's credential. Raises ConfigError, Retryable: as `read_secret`."""
    return {
        f"spark.sql.catalog.{CATALOG}.{name}": value
        for name, value in catalog_credential(lake.secret).items()
    }


def spark_session(job: Job) -> SparkSession:
    """The session with the settings of `calve.config.spark_conf`, unless the host has created one.

    Raises ConfigError: Spark refuses its settings, or the secret of a REST catalog cannot be used.
    Raises Retryable: AWS Secrets Manager did not answer.
    """
    builder = SparkSession.builder.appName(f"calve-{job.name}-{job.job}")
    for key, value in (spark_conf(job) | credential(job.lake)).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Py4JJavaError as error:  # there is no record yet that a message could quote
        said = str(error.java_exception.getMessage() or java_class(error)).partition("\n")[0]
        raise ConfigError(
            f"Spark does not start: {said}", fix=f"check jobs.{job.job}.conf in calve.yaml"
        ) from None
    remember_names(spark)
    spark.sparkContext.setLogLevel("ERROR")
    for name in VALUE_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    return spark


GLUES_OWN = re.compile(
    r"--(JOB_\w+|SECURITY_CONFIGURATION|(Redshift)?TempDir|true|debug|mode|endpoint|conf|scriptLocation|job-language"
    r"|job-bookmark-\w+|continuation-option|encryption-type|executor-cores|auto-scale-within-microbatch"
    r"|extra-(files|jars|py-files)|user-jars-first"
    r"|(enable|continuous-log|custom-log|disable-proxy|spark-event-logs|write-shuffle)[\w-]*)"
)
"""Arguments that Glue's definitions contain, that Glue adds, or that Glue documents as switches.

Parameters that could load other code, and that no definition of calve has, are not included.
A definition's own script and files cannot be distinguished here. So nobody may start a run with other arguments (ADR 39).
"""


def job_parser(name: str, told: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name, description=told, allow_abbrev=False)
    settings = parser.add_mutually_exclusive_group(required=True)
    settings.add_argument("--settings", help="resolved settings, as JSON")
    settings.add_argument("--settings-file", type=Path, help="resolved settings, as a JSON file")
    parser.add_argument("--warehouse", help="where new tables go: an S3 URI")
    parser.add_argument("--region", help="the region of lake and catalog")
    parser.add_argument("--kms-key", help="ARN of the key of new files")
    return parser


def flag(parser: argparse.ArgumentParser, name: str, told: str) -> None:
    """Add a true/false argument: Glue has no argument without a value."""
    parser.add_argument(
        name, nargs="?", const=True, default=False, type=lambda text: text.lower() == "true", help=told
    )


def read(parser: argparse.ArgumentParser, words: list[str]) -> tuple[Job, argparse.Namespace]:
    """The settings, overridden by the other arguments, and all arguments. Glue's own are ignored.

    Raises ConfigError: an argument is unknown, or the settings are invalid.
    """
    options, left = parser.parse_known_args(words)
    named = (each.partition("=")[0] for each in left if each.startswith("--"))
    if others := sorted({each for each in named if not GLUES_OWN.fullmatch(each)}):
        raise ConfigError(
            f"the job does not take {', '.join(others)}",
            fix="start the job as it is deployed, without arguments: by the function NAME-start",
        )
    try:
        job = Job.from_json(options.settings or options.settings_file.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the settings cannot be used: {type(error).__name__}: {error}",
            fix="give the job the resolved settings that this release of calve makes",
        ) from None
    lake = replace(
        job.lake,
        warehouse=options.warehouse or job.lake.warehouse,
        region=options.region or job.lake.region,
        kms_key=options.kms_key or job.lake.kms_key,
    )
    return replace(job, lake=lake), options
