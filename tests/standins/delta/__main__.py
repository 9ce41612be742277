"""Spark with Delta's own library, as a process of its own: prints the rows of each version of a Delta table.

It reads a copy of the table in a folder, because Delta's library has no S3 client.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from cli.embedded.layout import Layout
from cli.embedded.processes import HOST
from cli.embedded.runtimes import find_java
from stacks.jobs.jars import jar_folder, pinned, present, retrieve
from tests.integration.support.readers import Rows, rows_of

LOCK = Path(__file__).with_name("jars.lock")


def session(root: Path) -> SparkSession:
    """Spark whose catalog is Delta's."""
    if missing := [jar for jar in pinned(LOCK.read_text()) if not present(jar, jar_folder())]:
        retrieve(missing, jar_folder())
    os.environ |= {"JAVA_HOME": str(find_java(Layout(root)).home), "SPARK_LOCAL_IP": HOST}
    settings = {
        "spark.driver.extraClassPath": str(jar_folder() / "delta" / "*"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def versions(spark: SparkSession, folder: Path) -> Iterator[Rows]:
    """The rows of each version, the first one first."""
    for version in range(len(list((folder / "_delta_log").glob("*.json")))):
        found = spark.read.format("delta").option("versionAsOf", version).load(f"file:{folder}")
        yield rows_of(found.toArrow())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path, help="of the embedded stack")
    parser.add_argument("folder", type=Path)
    parser.add_argument("answer", type=Path, help="a file for the rows, as JSON")
    given = parser.parse_args()
    given.answer.write_text(json.dumps([*versions(session(given.root), given.folder)]))
