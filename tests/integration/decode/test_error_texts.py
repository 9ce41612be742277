"""Errors that quote a value of a record: it reaches neither the log nor what a table says of itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from calve.errors import Retryable
from glue_jobs.iceberg.catalog import catalog_errors
from glue_jobs.rounds.loop import first_line

VALUE = "ada@example.com"


@pytest.fixture
def printed() -> Iterator[StringIO]:
    """What PySpark's own loggers print."""
    handler = logging.StreamHandler(StringIO())
    loggers = [
        PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    ]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.stream
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.mark.parametrize("text", [f"raise_error('{VALUE}')", "cast(x as int)", "to_date(x, 'yyyy')"])
def test_an_expression_that_fails_on_a_value_does_not_tell_it(
    spark: SparkSession, text: str, printed: StringIO
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        with pytest.raises(PySparkException) as caught:
            spark.createDataFrame([(VALUE,)], "x string").select(F.expr(text)).collect()
        assert VALUE in str(caught.value)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "false")
    told = first_line(caught.value)
    assert VALUE not in told
    assert str(caught.value.getCondition()) in told
    assert VALUE not in printed.getvalue()


def test_an_error_of_java_does_not_tell_a_value_and_one_of_a_system_says_what_is_wrong(
    spark: SparkSession,
) -> None:
    jvm = spark._jvm
    assert jvm is not None
    value = jvm.java.lang.RuntimeException(VALUE)
    system = jvm.java.io.IOException("connection reset")
    spark_error = jvm.org.apache.spark.SparkException(f"[UNABLE_TO_DO] {VALUE}", value)
    for exception, expected in (
        (value, "java.lang.RuntimeException"),
        (system, "java.io.IOException: connection reset"),
        (
            spark_error,
            "org.apache.spark.SparkException: [UNABLE_TO_DO]; caused by java.lang.RuntimeException",
        ),
        (
            jvm.org.apache.spark.SparkException(f"Job aborted: {VALUE}", system),
            "org.apache.spark.SparkException; caused by java.io.IOException: connection reset",
        ),
    ):
        with pytest.raises(Retryable) as caught, catalog_errors("table t"):
            raise Py4JJavaError("", exception)
        assert caught.value.message == f"table t: {expected}"
        assert VALUE not in first_line(Py4JJavaError("", exception))


def test_a_java_exception_costs_few_requests(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark compares it with 13 classes, each by a name of four parts; those are requested once in a process."""
    jvm: Any = spark._jvm
    client, requests = jvm._gateway_client, list[str]()
    send = client.send_command

    def listen(command: str, *more: Any, **named: Any) -> Any:
        requests.append(command)
        return send(command, *more, **named)

    def fail() -> None:
        with pytest.raises(PySparkException):
            jvm.java.lang.Integer.parseInt("x")

    fail()
    monkeypatch.setattr(client, "send_command", listen)
    fail()
    names = {each.split("\n")[2] for each in requests if each.startswith("r\nu\n")}
    assert requests
    assert not names & {"java", "java.lang", "py4j", "py4j.reflection"}
