"""Rows that a commit has added to a table as records of its output topic: at least once, after the commit (ADR 23).

What is emitted is what the commit's own files hold, never what was read: a row is a record only once it is a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from calve.config import job, publishing
from calve.errors import Retryable, topic_forbidden
from calve.log import event
from calve.modes.column_rules import require_emit_key
from calve.names import SYSTEM_COLUMN, quote
from calve.outputs.emitting import EMITTED, HEADERS, Emitted, avro_schema, json_schema, left
from calve.registry.confluent import ConfluentRegistry
from calve.registry.registry import Registry
from calve.schema.columns import Json, struct
from calve.schema.evolution import data_columns
from calve.table.position import Position, ledger_of
from calve.table.protocol import Commit
from glue_jobs.iceberg.staging import added_rows
from glue_jobs.process import faults
from glue_jobs.process.java import java_class, java_classes
from glue_jobs.table.target import Target
from glue_jobs.transform.keys import at

ROUND_HEADER = "calve-round"


def emit(target: Target, base: Position) -> None:
    """Write the rows of all commits that have not been emitted to the output topic, if the table has one, oldest first.

    A table that is emitted for the first time begins with what is committed from now on; `base`: where it stands.

    Raises:
        Retryable: Kafka or the registry does not answer; the commits are emitted again, whole, by whoever comes next.
        Suspended: `emit_unusable`, `schema_refused`, `snapshot_lost`, `topic_forbidden`.
    """
    settings = target.table.emit
    if settings is None:
        return
    emitted = Emitted.of(target.main.properties)
    if emitted is None:
        _note(target, Emitted.at(base))
        return
    waiting = left(target.main.ancestors(), emitted)
    for commit in waiting:
        _emit(target, settings, commit)
        faults.point("emit.written", target.table.name)
    if waiting or emitted.round != base.round:
        _note(target, Emitted.at(base))


def _note(target: Target, emitted: Emitted) -> None:
    target.main.set_properties({EMITTED: emitted.to_json()})
    faults.point("emit.noted", target.table.name)
    target.main.refresh()


def _emit(target: Target, settings: publishing.Emit, commit: Commit) -> None:
    with added_rows(target.lake, target.main, commit.id) as rows:
        if rows is not None:
            _write(target, settings, commit, rows)


def _write(target: Target, settings: publishing.Emit, commit: Commit, rows: DataFrame) -> None:
    target.output.ensure_topic(settings)
    columns = data_columns(target.main.schema)
    encoding = _Encoding(settings, columns, target.registry)
    records = encoding.records(rows, commit.summary["calve.round"])
    try:
        (
            records.write.format("kafka")
            .options(**target.output.connection.access().options)
            .option("topic", settings.topic)
            .option("includeHeaders", "true")
            .save()
        )
    except Py4JJavaError as error:
        # To one who may write no topic at all Kafka says that the cluster is forbidden.
        if any(each.endswith("AuthorizationException") for each in java_classes(error)):
            raise topic_forbidden(settings.topic, target.output.servers) from None
        raise Retryable(f"topic {settings.topic} could not be written: {java_class(error)}") from None
    event(
        "rows.emitted",
        table=str(target.name),
        topic=settings.topic,
        round=commit.summary["calve.round"],
        rows=ledger_of(commit.summary).rows_appended,
    )


@dataclass(frozen=True, slots=True)
class _Encoding:
    """How rows with these data columns become records: schemas are registered when they are first needed."""

    settings: publishing.Emit
    columns: Json
    registry: Registry | None

    def records(self, rows: DataFrame, round_id: str) -> DataFrame:
        """Rows as Spark's Kafka sink takes them."""
        return rows.select(
            self._key().alias("key"),
            self._value().alias("value"),
            _headers(round_id).alias("headers"),
        )

    def _value(self) -> Column:
        return self._written(self.columns, "value")

    def _key(self) -> Column:
        """The columns that calve.yaml names; without any the record's key, as the table has it."""
        names = self.settings.key
        if not names:
            return at(f"{SYSTEM_COLUMN}.key")
        known = {each["name"]: each for each in self.columns["fields"]}
        require_emit_key(self.settings, self.columns)
        return self._written(struct(*(known[name] for name in names)), "key")

    def _written(self, columns: Json, part: job.PartName) -> Column:
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
