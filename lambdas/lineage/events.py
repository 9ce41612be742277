"""A table as OpenLineage describes it: the topic and the tables that its rows come from, its columns, and what each is made of.

https://github.com/OpenLineage/OpenLineage/blob/main/spec/OpenLineage.md, names as in `spec/Naming.md` there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    set_producer,
)
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    dataset_version_dataset,
    job_type_job,
    output_statistics_output_dataset,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.naming.dataset import S3, AWSGlue, DatasetNaming, Kafka
from openlineage.client.uuid import generate_static_uuid

from calve.config.publishing import OpenLineage
from calve.names import TableName
from calve.outputs.origins import How, Origin, Origins
from calve.table.summary import ORIGINS

set_producer("urn:calve")
Json = Any
KINDS: Mapping[How, tuple[str, str, bool]] = {
    "same": ("DIRECT", "IDENTITY", False),
    "computed": ("DIRECT", "TRANSFORMATION", False),
    "masked": ("DIRECT", "TRANSFORMATION", True),
    "aggregated": ("DIRECT", "AGGREGATION", False),
    "joined": ("INDIRECT", "JOIN", False),
}
"""How a column comes from a field -> type, subtype and masking of a transformation in OpenLineage."""
FILTER = column_lineage_dataset.Transformation("INDIRECT", "FILTER", masking=False)
REWRITE = "replace"


@dataclass(frozen=True, slots=True)
class Glue:
    """The catalog that names tables."""

    region: str
    account: str

    def named(self, table: TableName) -> AWSGlue:
        return AWSGlue(self.region, self.account, table.database, table.table)


@dataclass(frozen=True, slots=True)
class Described:
    """A table that notes its origins, by its newest metadata."""

    name: TableName
    metadata: Mapping[str, Json]
    origins: Origins
    glue: Glue
    receiver: OpenLineage

    @classmethod
    def of(
        cls, name: TableName, metadata: Mapping[str, Json], glue: Glue, receiver: OpenLineage
    ) -> Described | None:
        """None: the table has no snapshot, or no job has noted its origins yet."""
        text = metadata.get("properties", {}).get(ORIGINS)
        if text is None or metadata.get("current-snapshot-id") in (None, -1):
            return None
        return cls(name, metadata, Origins.from_json(text), glue, receiver)

    @property
    def digest(self) -> str:
        """Of the receiver, and of all that the events say, except snapshots and rows."""
        said = (self.receiver.to_json(), self.metadata["location"], self._schema, self.origins.to_json())
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def is_empty(self) -> bool:
        """Whether the table has no rows yet."""
        head = self._snapshot(self.metadata["current-snapshot-id"])
        return bool(head["summary"].get("total-records") == "0")

    def events(self, since: str | None) -> list[RunEvent]:
        """A start and an end of a run that made the snapshots after `since`. The same snapshots give the same run."""
        new = list(self._snapshots(since))
        head = self._snapshot(self.metadata["current-snapshot-id"])
        first = new[-1] if new else head
        committed = _moment(head)
        unique = f"{self.metadata['table-uuid']} {head['snapshot-id']} {self.digest}"
        run = Run(str(generate_static_uuid(committed, unique.encode())))
        kind = job_type_job.JobTypeJobFacet("STREAMING", "CALVE", "TABLE")
        job = Job(self.receiver.namespace, str(self.name), {"jobType": kind})
        rows = sum(int(each["summary"].get("added-records", 0)) for each in new)
        inputs, output = list(self._inputs()), self._output(str(head["snapshot-id"]), rows)
        return [
            RunEvent(eventTime=_moment(first).isoformat(), run=run, job=job, eventType=RunState.START),
            RunEvent(
                eventTime=committed.isoformat(),
                run=run,
                job=job,
                eventType=RunState.COMPLETE,
                inputs=inputs,
                outputs=[output],
            ),
        ]

    @property
    def _schema(self) -> Json:
        schemas = self.metadata["schemas"]
        return next(each for each in schemas if each["schema-id"] == self.metadata["current-schema-id"])

    def _snapshot(self, snapshot_id: int) -> Json:
        return next(each for each in self.metadata["snapshots"] if each["snapshot-id"] == snapshot_id)

    def _snapshots(self, since: str | None) -> Iterator[Json]:
        """Those of main after `since` that changed rows, the newest first, as far as they are kept."""
        kept = {each["snapshot-id"]: each for each in self.metadata["snapshots"]}
        at = kept.get(self.metadata["current-snapshot-id"])
        while at is not None and str(at["snapshot-id"]) != since:
            if at["summary"].get("operation") != REWRITE:
                yield at
            at = kept.get(at.get("parent-snapshot-id"))

    def _inputs(self) -> Iterator[InputDataset]:
        fields = [schema_dataset.SchemaDatasetFacetFields(*each) for each in self.origins.fields.items()]
        facet = schema_dataset.SchemaDatasetFacet(fields)
        yield InputDataset(*_named(self._topic), facets={"schema": facet})
        every = [origin for found in self.origins.columns.values() for origin in found]
        for table in sorted({each.table for each in (*every, *self.origins.rows) if each.table}):
            read = {each.field: None for each in (*every, *self.origins.rows) if each.table == table}
            facet = schema_dataset.SchemaDatasetFacet(
                [schema_dataset.SchemaDatasetFacetFields(each) for each in read]
            )
            yield InputDataset(*_named(self._table(table)), facets={"schema": facet})

    def _output(self, snapshot: str, rows: int) -> OutputDataset:
        bucket, path = (part := urlsplit(self.metadata["location"])).netloc, part.path.strip("/")
        stored = symlinks_dataset.Identifier(*_named(S3(bucket, path)), type="LOCATION")
        columns = {
            name: column_lineage_dataset.Fields([self._input(each) for each in found])
            for name, found in self.origins.columns.items()
        }
        chosen_by = [self._input(each, FILTER) for each in self.origins.rows]
        return OutputDataset(
            *_named(self.glue.named(self.name)),
            facets={
                "schema": schema_dataset.SchemaDatasetFacet(list(_fields(self._schema))),
                "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(columns, chosen_by),
                "symlinks": symlinks_dataset.SymlinksDatasetFacet([stored]),
                "storage": storage_dataset.StorageDatasetFacet("iceberg", "parquet"),
                "version": dataset_version_dataset.DatasetVersionDatasetFacet(snapshot),
            },
            outputFacets={
                "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows)
            },
        )

    def _input(
        self, origin: Origin, how: column_lineage_dataset.Transformation | None = None
    ) -> column_lineage_dataset.InputField:
        kind, subtype, masking = KINDS[origin.how]
        place = self._table(origin.table) if origin.table else self._topic
        done = how or column_lineage_dataset.Transformation(kind, subtype, masking=masking)
        return column_lineage_dataset.InputField(*_named(place), origin.field, [done])

    @property
    def _topic(self) -> Kafka:
        host, _, port = self.origins.broker.rpartition(":")
        return Kafka(host, port, self.origins.topic)

    def _table(self, name: str) -> AWSGlue:
        return self.glue.named(TableName(*name.split(".", 1)))


def _named(dataset: DatasetNaming) -> tuple[str, str]:
    return dataset.get_namespace(), dataset.get_name()


def _moment(snapshot: Json) -> datetime:
    return datetime.fromtimestamp(snapshot["timestamp-ms"] / 1000, UTC)


def _fields(kind: Json) -> Iterator[schema_dataset.SchemaDatasetFacetFields]:
    """The columns of Iceberg's JSON form. A list has a field `element`, a map `key` and `value`."""
    for each in _inside(kind):
        inner = each["type"]
        yield schema_dataset.SchemaDatasetFacetFields(
            each["name"],
            inner if isinstance(inner, str) else inner["type"],
            each.get("doc"),
            fields=list(_fields(inner)) if isinstance(inner, dict) else [],
        )


def _inside(kind: Json) -> Iterable[Json]:
    match kind["type"]:
        case "list":
            return [{"name": "element", "type": kind["element"]}]
        case "map":
            return [{"name": each, "type": kind[each]} for each in ("key", "value")]
    fields: list[Json] = kind["fields"]
    return fields
