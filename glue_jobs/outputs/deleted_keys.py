"""The keys of rows that a commit deleted: an output topic gets a tombstone for each (ADR 69)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from calve.errors import Suspended
from calve.schema.columns import Json
from calve.schema.evolution import column_at
from glue_jobs.iceberg.delete_files import LiveFile, deleted_by
from glue_jobs.iceberg.storage import Storage, failures
from glue_jobs.index.data_files import KeyColumns, read_values
from glue_jobs.index.table_index import hashed
from glue_jobs.table.open_table import OpenTable

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
