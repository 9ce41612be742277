"""Emit the rows of each commit as records of an output topic: at least once, after the commit (ADR 23).

The source is the commit's own files, never the input records: only a committed row is emitted. A key whose row a commit deleted
becomes a tombstone (ADR 69).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from calve.config.job import PartName
from calve.config.publishing import Emit
from calve.config.steps import Mask
from calve.errors import Retryable, Suspended, topic_forbidden
from calve.log import event
from calve.names import RECORD_KEY, SYSTEM_COLUMN, quote
from calve.outputs.emitting import HEADERS, Emitted, avro_schema, json_schema, left
from calve.registry.confluent import ConfluentRegistry
from calve.rounds.column_rules import require_emit_key, require_guid
from calve.schema.columns import CHANGE, Json, struct
from calve.schema.evolution import column_at, data_columns
from calve.schema.wire import GUID_MAGIC, GUID_SIZE
from calve.schema.wire import HEADERS as SCHEMA_HEADERS
from calve.table.position import Position
from calve.table.summary import EMITTED, ROUND, ledger_of
from glue_jobs.columns.expressions import at
from glue_jobs.iceberg.delete_files import LiveFile, deleted_by
from glue_jobs.iceberg.staging import added_rows
from glue_jobs.iceberg.storage import Storage, failures
from glue_jobs.index.data_files import KeyColumns, read_values
from glue_jobs.index.table_index import hashed
from glue_jobs.process import faults
from glue_jobs.process.java import java_class, java_classes
from glue_jobs.table.open_table import OpenTable

ROUND_HEADER = "calve-round"
Header = tuple[str, Column]


def emit(table: OpenTable, base: Position) -> None:
    """Emit all commits not emitted yet, oldest first, if the table has an output topic.

    The first time, emission starts with the commits after `base`, the table's position.
    Raises Retryable: Kafka or the registry does not answer. The next round emits these commits again, as a whole.
    Raises Suspended: `emit_unusable`, `schema_refused`, `snapshot_lost`, `topic_forbidden`.
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
        round_id = commit.summary[ROUND]
        with added_rows(table.main, commit.id) as rows:
            if rows is not None:
                table.services.output.ensure_topic(settings)
                _write(table, settings, _records(table, settings, rows, round_id))
                facts = {"round": round_id, "rows": ledger_of(commit.summary).rows_appended}
                event("rows.emitted", table=str(table.name), topic=settings.topic, **facts)
        gone = deleted_keys(table, commit.id) if may_delete(table) else None
        if gone is not None:
            table.services.output.ensure_topic(settings)
            _write(table, settings, _tombstones(table, settings, gone, round_id))
            facts = {"round": round_id, "tombstones": gone.num_rows}
            event("tombstones.emitted", table=str(table.name), topic=settings.topic, **facts)
        faults.point("emit.written", table.config.name)
    if waiting or emitted.round != base.round:
        _note(table, Emitted.at(base))


def _note(table: OpenTable, emitted: Emitted) -> None:
    table.main.set_properties({EMITTED: emitted.to_json()})
    faults.point("emit.noted", table.config.name)
    table.main.refresh()


def _write(table: OpenTable, settings: Emit, records: DataFrame) -> None:
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


def _records(table: OpenTable, settings: Emit, rows: DataFrame, round_id: str) -> DataFrame:
    """Rows in the form of Spark's Kafka sink. Key: the key columns of calve.yaml, or the record's key as the table has it."""
    columns = data_columns(table.main.schema)
    key, of_key = _key(table, settings, columns) if settings.key else (at(RECORD_KEY), [])
    value, of_value = _encoded(table, settings, columns, "value")
    if table.mode.reads_changes:
        value = F.when(~at(f"{CHANGE['name']}.deleted"), value)
    told = [(name, at(f"{SYSTEM_COLUMN}.{field}").cast("string")) for name, field in HEADERS.items()]
    headers = _headers([*told, (ROUND_HEADER, F.lit(round_id)), *of_key, *of_value])
    masks = (each for each in table.config.steps if isinstance(each, Mask))
    if not settings.key and all(each.key == each.headers == "keep" for each in masks):
        # The key may have no prefix, because a header of its record names its schema.
        received = F.filter(at(f"{SYSTEM_COLUMN}.headers"), lambda each: each["key"] == SCHEMA_HEADERS["key"])
        headers = F.coalesce(F.concat(headers, received), headers)
    return rows.select(key.alias("key"), value.alias("value"), headers.alias("headers"))


def _tombstones(table: OpenTable, settings: Emit, keys: pa.Table, round_id: str) -> DataFrame:
    """Records without a value, of these keys (`deleted_keys`), in the form of Spark's Kafka sink."""
    spark = table.main.lake.spark
    if settings.key:
        columns = data_columns(table.main.schema)
        rows = spark.createDataFrame(assembled(columns, settings.key, keys))
        key, of_key = _key(table, settings, columns)
    else:
        rows, key, of_key = spark.createDataFrame(keys.rename_columns(["key"])), F.col("key"), []
    value, headers = F.lit(None).cast("binary"), _headers([(ROUND_HEADER, F.lit(round_id)), *of_key])
    return rows.select(key.alias("key"), value.alias("value"), headers.alias("headers"))


def _headers(pairs: Iterable[Header]) -> Column:
    return F.array(
        *(F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in pairs)
    )


def _key(table: OpenTable, settings: Emit, columns: Json) -> tuple[Column, list[Header]]:
    """As `_encoded`, the columns of the key. Raises Suspended: `emit_unusable`: one is missing."""
    require_emit_key(settings, columns)
    known = {each["name"]: each for each in columns["fields"]}
    return _encoded(table, settings, struct(*(known[name] for name in settings.key)), "key")


def _encoded(table: OpenTable, settings: Emit, columns: Json, part: PartName) -> tuple[Column, list[Header]]:
    """These columns as bytes, and the header that names their schema, unless a prefix of the bytes does.

    The schema is registered on first use. Raises Suspended: `emit_unusable`: the registry has no GUIDs.
    """
    registry = cast("ConfluentRegistry", table.services.registry)  # calve.settings lets no other kind through
    name = f"{settings.topic}_{part}"
    row = F.struct(*(F.col(quote(each["name"])) for each in columns["fields"]))
    if settings.format == "avro":
        text = avro_schema(name, columns)
        body = to_avro(row, text)
    else:
        text = json_schema(name, columns)
        body = F.to_json(row).cast("binary")
    schema_id = registry.register(f"{settings.topic}-{part}", text, settings.format.upper())
    if settings.schema_id == "prefix":
        return F.concat(F.lit(bytearray(registry.wire.frame(schema_id))), body), []
    guid = require_guid(registry.by_id(schema_id))
    return body, [(SCHEMA_HEADERS[part], F.lit(bytearray(GUID_MAGIC + guid.to_bytes(GUID_SIZE, "big"))))]


PARQUET = "PARQUET"


def may_delete(table: OpenTable) -> bool:
    """Whether a round may delete a row without adding another one of its key."""
    mode = table.mode
    if not mode.replaces_rows or mode.groups_rows:
        return False
    return mode.deletes or mode.reads_changes or (mode.drops and bool(table.row_plan.chain.steps))


def deleted_keys(table: OpenTable, snapshot_id: int) -> pa.Table | None:
    """The columns of the key (those of the mode, by path) of rows that a commit deleted, each key once; None: there are none.

    Without keys that main has now: a row of the commit, or of a later one, replaces the deleted one.
    Raises Suspended: `snapshot_lost`: it has expired. `emit_unusable`: another tool wrote a data file again, in another format.
    """
    main, mode = table.main, table.mode
    snapshot = main.java.snapshot(snapshot_id)
    if snapshot is None:
        raise Suspended("snapshot_lost", f"snapshot {snapshot_id} of table {main.name} has expired")
    spark = main.lake.spark
    storage = Storage.of(spark)
    with failures():
        positions = deleted_by(main, snapshot, storage)
    if not positions:
        return None
    columns = KeyColumns.of(main.schema, mode.key, None)
    files = [LiveFile(-1, path, PARQUET, len(found), 0, ()) for path, found in positions.items()]
    parts: dict[str, pa.Table] = {}
    if columns is not None:
        parts, _ = read_values(spark.sparkContext, columns, files, positions, storage)
    if len(parts) < len(files):
        why = f"the keys of rows that snapshot {snapshot_id} of table {main.name} deleted cannot be read"
        raise Suspended(
            "emit_unusable", why, fix="remove `emit`, or let no other tool write the table's files again"
        )
    found = pa.concat_tables(parts.values()).rename_columns(list(mode.key)).combine_chunks()
    keys = hashed(found)
    _, first = np.unique(np.column_stack(keys), axis=0, return_index=True)
    gone = ~table.index.holds(main, keys.take(first), mode.key)
    return found.take(pa.array(first[gone])) if gone.any() else None


def assembled(columns: Json, names: Sequence[str], keys: pa.Table) -> pa.Table:
    """The columns of these names, of a table of the key's columns by path: structs of its fields, and plain columns."""

    def of(kind: Any, path: str) -> pa.Array:
        if not isinstance(kind, Mapping):
            return keys.column(path).combine_chunks()
        fields = [each["name"] for each in kind["fields"]]
        return pa.StructArray.from_arrays(
            [of(each["type"], f"{path}.{each['name']}") for each in kind["fields"]], fields
        )

    found = {name: column_at(columns, name) for name in names}
    return pa.table({name: of(each["type"], name) for name, each in found.items() if each})
