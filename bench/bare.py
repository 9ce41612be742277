"""The peer of the benchmark: the shortest Spark program that turns a topic into an Iceberg table.

It reads the same offsets, decodes with `from_avro`, and appends the same columns, `_kafka` included, to a table with the same
properties. It has no position, no ledger, no dead letters: a bad record is a row of nulls, a second run doubles the table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from calve.job import Job
from calve.registry import open_registry
from calve.spark_conf import CATALOG
from glue_jobs.lake import PROPERTIES
from glue_jobs.session import spark_session


def main(settings: Path, table: str, ends: str) -> None:
    job = Job.from_json(settings.read_text())
    topic = job.tables[0].topic
    schema = open_registry(job.registry).versions(f"{topic}-value")[-1].text
    spark = spark_session(job)
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", job.kafka.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", json.dumps({topic: json.loads(ends)}))
        .option("includeHeaders", "true")
        .load()
    )
    rows = records.select(
        from_avro(F.expr("substring(value, 6)"), schema, {"mode": "PERMISSIVE"}).alias("row"),
        F.struct(
            "topic",
            "partition",
            "offset",
            "timestamp",
            F.col("timestampType").alias("timestamp_type"),
            "key",
            "headers",
            F.expr("cast(conv(hex(substring(value, 2, 4)), 16, 10) as int)").alias("schema_id"),
        ).alias("_kafka"),
    ).select("row.*", "_kafka")
    writer = rows.writeTo(f"{CATALOG}.{job.lake.database}.{table}").using("iceberg")
    for name, value in PROPERTIES.items():
        writer = writer.tableProperty(name, value)
    writer.create()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
