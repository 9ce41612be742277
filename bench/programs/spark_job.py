"""`python -m bench.programs.spark_job batch|streaming|follow SETTINGS`: the shortest Spark programs that keep topics as tables.

They decode with Spark's own functions and append the columns that calve's tables have, `_kafka` included, to tables with the same
properties. They have no ledger and no dead letters: a bad record is a row of nulls. `batch` reads a topic once and appends it;
`streaming` is Structured Streaming with a checkpoint, which drains the topic and ends; `follow` is the
same with a trigger by the clock, and does not end.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.programs.marks import LAP, READY, mark
from calve.config.job import Job, Table
from calve.config.spark_conf import CATALOG
from calve.registry.registry import open_registry
from calve.schema.wire import Schema
from glue_jobs.columns.expressions import spark_type
from glue_jobs.process.session import spark_session

RECORDS_PER_TRIGGER = 1_500_000


@dataclass(frozen=True, slots=True)
class Program:
    """What both need of a job."""

    spark: SparkSession
    job: Job

    def batch(self, table: Table) -> None:
        reader = self.spark.read.format("kafka").options(**self._kafka(table.topic))
        rows(reader.load(), self._schema(table)).writeTo(self._name(table)).append()

    def streaming(self, table: Table, checkpoint: Path) -> None:
        """Drain the topic; a trigger takes so many records that waiting for it is not what is measured."""
        writer = self._stream(table, checkpoint, maxOffsetsPerTrigger=str(RECORDS_PER_TRIGGER))
        writer.trigger(availableNow=True).toTable(self._name(table)).awaitTermination()

    def follow(self, table: Table, checkpoint: Path) -> None:
        """Keep the table until the process is ended."""
        writer = self._stream(table, checkpoint)
        every = f"{table.freshness_s * 1000:.0f} milliseconds"
        writer.trigger(processingTime=every).toTable(self._name(table)).awaitTermination()

    def _stream(self, table: Table, checkpoint: Path, **options: str) -> DataStreamWriter:
        reader = self.spark.readStream.format("kafka").options(**self._kafka(table.topic), **options)
        writer = rows(reader.load(), self._schema(table)).writeStream.format("iceberg")
        return writer.option("checkpointLocation", checkpoint.as_uri())

    def _kafka(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.job.kafka.bootstrap_servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": topic,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
        }

    def _schema(self, table: Table) -> Schema:
        assert self.job.registry is not None
        return open_registry(self.job.registry).versions(f"{table.topic}-value")[-1]

    def _name(self, table: Table) -> str:
        return f"{CATALOG}.{self.job.lake.database}.{table.name}"


def rows(records: DataFrame, schema: Schema) -> DataFrame:
    """The columns of calve's tables."""
    return records.select(
        decoded(schema).alias("row"),
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


def decoded(schema: Schema) -> Column:
    """The row of a value, without the five bytes that its schema is told by.

    JSON is read as the columns that calve derives of the schema: Spark has no function for JSON Schema.
    """
    if schema.type == "AVRO":
        return from_avro(F.expr("substring(value, 6)"), schema.text, {"mode": "PERMISSIVE"})
    from calve.decoding.decode_plan import first_columns

    return F.from_json(
        F.expr("cast(substring(value, 6) as string)"), spark_type(first_columns([schema], "it"))
    )


def main(kind: str, settings: Path) -> None:
    job = Job.from_json(settings.read_text())
    program = Program(spark_session(job), job)
    if kind != "follow":
        mark(READY)
    for table in job.tables:
        checkpoint = settings.parent / f"{table.name}.checkpoint"
        match kind:
            case "batch":
                program.batch(table)
            case "streaming":
                program.streaming(table, checkpoint)
            case "follow":
                program.follow(table, checkpoint)
        mark(LAP, table=table.name)
    program.spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
