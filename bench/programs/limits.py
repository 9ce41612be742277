"""`python -m bench.programs.limits fetch|parse|decode|parquet SETTINGS`: the way of records as far as one of the engine's parts.

One process, no Spark; files go to a folder of this machine, and no table knows of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.programs.marks import LAP, READY, mark
from calve.config.job import Job, Table
from calve.decoding.decode_plan import DecodePlan
from calve.decoding.record_schemas import record_schemas_of
from calve.names import SYSTEM_COLUMN
from calve.registry.registry import open_registry
from calve.schema.columns import KAFKA, Json, struct, with_ids
from calve.table.summary import PROPERTIES
from cli.kafka import Cluster
from glue_jobs.engines.columnar.decoder import Decoder
from glue_jobs.engines.columnar.layouts import layout
from glue_jobs.engines.columnar.parquet import Files
from glue_jobs.engines.columnar.tasks import kafka_column
from glue_jobs.iceberg.storage import Storage
from glue_jobs.kafka.batches import Span
from glue_jobs.kafka.client import Settings, settings_of
from glue_jobs.kafka.connection import Connection
from glue_jobs.kafka.fetching import CHUNK_BYTES, Range, _Reader, fetch
from glue_jobs.kafka.records import Records


@dataclass(frozen=True, slots=True)
class Way:
    """All of a topic, and how its values are decoded."""

    settings: Settings
    topic: str
    topic_id: str
    ranges: tuple[Range, ...]
    decoding: DecodePlan
    columns: Json

    @classmethod
    def of(cls, job: Job, table: Table) -> Way:
        assert job.registry is not None
        found = Cluster(job.kafka, job.lake.region).topics({table.topic})[table.topic]
        parts = record_schemas_of(table, open_registry(job.registry))
        versions = parts.versions()
        columns = parts.first_columns(versions)
        return cls(
            settings_of(Connection(job.kafka)),
            table.topic,
            found.key.topic_id,
            tuple(Range(partition, 0, end) for partition, end in found.end.items()),
            parts.decoding(columns, versions),
            columns,
        )

    def fetch(self) -> None:
        """Bytes, checked, and where their batches begin."""
        spans = {
            each.partition: Span(self.topic, each.partition, each.start, each.to) for each in self.ranges
        }
        reader = _Reader(self.settings, self.topic, self.topic_id, CHUNK_BYTES, spans)
        while reader.ahead:
            reader.next()
            reader.ask_ahead()

    def records(self) -> Iterator[Records]:
        return fetch(self.settings, self.topic, self.topic_id, self.ranges, CHUNK_BYTES)

    def tables(self) -> Iterator[pa.Table]:
        """The rows of calve's table."""
        decoder = Decoder(self.decoding, self.columns)
        for records in self.records():
            decoded = decoder.decode(records)
            kafka = kafka_column(self.topic, records, decoded.good, decoded.schema_id)
            yield decoded.columns.append_column(SYSTEM_COLUMN, kafka)

    def files(self, folder: Path) -> Files:
        columns = with_ids(struct(*self.columns["fields"], KAFKA))
        spec, order = {"spec-id": 0, "fields": []}, {"order-id": 0, "fields": []}
        return Files(layout(columns, spec, order, PROPERTIES, Storage("none")), f"file://{folder}/")


def go(way: Way, step: str, folder: Path) -> None:
    match step:
        case "fetch":
            way.fetch()
        case "parse":
            for _ in way.records():
                pass
        case "decode":
            for _ in way.tables():
                pass
        case "parquet":
            files = way.files(folder)
            for table in way.tables():
                files.write(table)
            files.close()


def main(step: str, settings: Path) -> None:
    job = Job.from_json(settings.read_text())
    mark(READY)
    for table in job.tables:
        folder = settings.parent / table.name
        folder.mkdir()
        go(Way.of(job, table), step, folder)
        mark(LAP, table=table.name)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
