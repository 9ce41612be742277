"""The Spark session of a job, and the proof that hostile bytes cannot hurt its JVMs."""

from __future__ import annotations

from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from calve.errors import ConfigError, Fatal
from calve.job import Job
from calve.spark_conf import AVRO_LIMITS, ITEMS_LIMIT, java_options, spark_conf
from calve.wire import zigzag
from glue_jobs.java_errors import java_class

VALUE_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's own loggers that print values of records when an expression fails, whoever handles the error."""


def spark_session(job: Job) -> SparkSession:
    """The session, made with the settings of `calve.spark_conf` where the host has not made one already.

    Raises:
        ConfigError: Spark refuses its settings.
    """
    builder = SparkSession.builder.appName(f"calve-{job.name}-{job.job}")
    for key, value in spark_conf(job).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Py4JJavaError as error:  # there is no record yet that a message could quote
        said = str(error.java_exception.getMessage() or java_class(error)).partition("\n")[0]
        raise ConfigError(
            f"Spark does not start: {said}", fix=f"check jobs.{job.job}.conf in calve.yaml"
        ) from None
    spark.sparkContext.setLogLevel("ERROR")
    for name in VALUE_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    return spark


def require_avro_guard(spark: SparkSession) -> None:
    """Prove, in a task on each core, that Avro's limits on claimed lengths are active.

    A host may ignore JVM options it is given. Without them a record of nine bytes that claims two gigabytes is allocated.
    The bomb is an array of one item too many; its items take no bytes, so that nothing is allocated where it is refused.

    Raises:
        Fatal: the limits are not active.
    """
    bomb = F.lit(bytearray(zigzag(ITEMS_LIMIT + 1) + b"\x00"))
    schema = (
        '{"type":"record","name":"bomb","fields":[{"name":"items","type":{"type":"array","items":"null"}}]}'
    )
    tasks = spark.sparkContext.defaultParallelism
    rows = spark.range(0, tasks, 1, tasks)
    decoded = from_avro(F.when(F.col("id") >= 0, bomb), schema, {"mode": "PERMISSIVE"})["items"].isNotNull()
    unset = [
        F.expr(f"coalesce(java_method('java.lang.System', 'getProperty', '{name}'), '') != '{limit}'")
        for name, limit in AVRO_LIMITS.items()
    ]
    if rows.where(reduce(Column.__or__, unset, decoded)).limit(1).collect():
        raise Fatal(
            "the limits on Avro lengths are not active in Spark's JVMs: a record of nine bytes could exhaust their memory",
            fix=f"start driver and executors with: {java_options()}",
        )
