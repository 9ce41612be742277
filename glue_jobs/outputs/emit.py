"""Emit the rows of each commit as records of an output topic: at least once, after the commit (ADR 23).

The source is the commit's own files, never the input records: only a committed row is emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from calve.config.job import PartName
from calve.config.publishing import Emit
from calve.errors import Retryable, topic_forbidden
from calve.log import event
from calve.names import SYSTEM_COLUMN, quote
from calve.outputs.emitting import HEADERS, Emitted, avro_schema, json_schema, left
from calve.registry.confluent import ConfluentRegistry
from calve.registry.registry import Registry
from calve.rounds.column_rules import require_emit_key
from calve.schema.columns import Json, struct
from calve.schema.evolution import data_columns
from calve.table.position import Position
from calve.table.protocol import Commit
from calve.table.summary import EMITTED, ROUND, ledger_of
from glue_jobs.columns.expressions import at
from glue_jobs.iceberg.staging import added_rows
from glue_jobs.process import faults
from glue_jobs.process.java import java_class, java_classes
from glue_jobs.table.open_table import OpenTable

ROUND_HEADER = "calve-round"


def emit(table: OpenTable, base: Position) -> None:
    """Emit all commits not emitted yet, oldest first, if the table has an output topic.

    The first time, emission starts with the commits after `base`, the table's position.

    Raises:
        Retryable: Kafka or the registry does not answer. The next round emits these commits again, as a whole.
        Suspended: `emit_unusable`, `schema_refused`, `snapshot_lost`, `topic_forbidden`.
    """
    settings = table.config.emit
    if settings is None:
        return
    emitted = Emitted.of(table.main.properties)
    if emitted is None:
        _note(table, Emitted.at(base))
        return
    waiting = left(table.main.ancestors(), emitted)
    for commit in waiting:
        _emit(table, settings, commit)
        faults.point("emit.written", table.config.name)
    if waiting or emitted.round != base.round:
        _note(table, Emitted.at(base))


def _note(table: OpenTable, emitted: Emitted) -> None:
    table.main.set_properties({EMITTED: emitted.to_json()})
    faults.point("emit.noted", table.config.name)
    table.main.refresh()


def _emit(table: OpenTable, settings: Emit, commit: Commit) -> None:
    with added_rows(table.services.lake, table.main, commit.id) as rows:
        if rows is not None:
            _write(table, settings, commit, rows)


def _write(table: OpenTable, settings: Emit, commit: Commit, rows: DataFrame) -> None:
    table.services.output.ensure_topic(settings)
    columns = data_columns(table.main.schema)
    encoding = _Encoding(settings, columns, table.services.registry)
    records = encoding.records(rows, commit.summary[ROUND])
    try:
        (
            records.write.format("kafka")
            .options(**table.services.output.connection.access().options)
            .option("topic", settings.topic)
            .option("includeHeaders", "true")
            .save()
        )
    except Py4JJavaError as error:
        # For a client that may not write any topic, Kafka reports that the cluster is forbidden.
        if any(each.endswith("AuthorizationException") for each in java_classes(error)):
            raise topic_forbidden(settings.topic, table.services.output.servers) from None
        raise Retryable(f"topic {settings.topic} could not be written: {java_class(error)}") from None
    event(
        "rows.emitted",
        table=str(table.name),
        topic=settings.topic,
        round=commit.summary[ROUND],
        rows=ledger_of(commit.summary).rows_appended,
    )


@dataclass(frozen=True, slots=True)
class _Encoding:
    """Encodes rows with these data columns as records. Schemas are registered on first use."""

    settings: Emit
    columns: Json
    registry: Registry | None

    def records(self, rows: DataFrame, round_id: str) -> DataFrame:
        """Rows in the form of Spark's Kafka sink."""
        return rows.select(
            self._key().alias("key"),
            self._value().alias("value"),
            _headers(round_id).alias("headers"),
        )

    def _value(self) -> Column:
        return self._written(self.columns, "value")

    def _key(self) -> Column:
        """The key columns of calve.yaml, or else the record's key as the table has it."""
        names = self.settings.key
        if not names:
            return at(f"{SYSTEM_COLUMN}.key")
        known = {each["name"]: each for each in self.columns["fields"]}
        require_emit_key(self.settings, self.columns)
        return self._written(struct(*(known[name] for name in names)), "key")

    def _written(self, columns: Json, part: PartName) -> Column:
        registry = cast("ConfluentRegistry", self.registry)  # calve.settings lets no other kind through
        subject, fields = (
            f"{self.settings.topic}-{part}",
            [F.col(quote(f["name"])) for f in columns["fields"]],
        )
        name = f"{self.settings.topic}_{part}"
        if self.settings.format == "avro":
            text = avro_schema(name, columns)
            body = to_avro(F.struct(*fields), text)
        else:
            text = json_schema(name, columns)
            body = F.to_json(F.struct(*fields)).cast("binary")
        schema_id = registry.register(subject, text, self.settings.format.upper())
        return F.concat(F.lit(bytearray(registry.wire.frame(schema_id))), body)


def _headers(round_id: str) -> Column:
    found = [(name, at(f"{SYSTEM_COLUMN}.{field}").cast("string")) for name, field in HEADERS.items()]
    pairs = [*found, (ROUND_HEADER, F.lit(round_id))]
    return F.array(
        *(F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in pairs)
    )
