"""A round of a table of versions whose records the columnar engine has decoded: the driver places them among the table's rows.

It has room for few rows. `glue_jobs.modes.history` makes larger rounds, in Spark.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from calve.modes.history import History
from glue_jobs.decode.machines.change_events import lacking
from glue_jobs.engines.choice import loaded
from glue_jobs.iceberg.staging import Staged
from glue_jobs.index.decision import KeyedFiles, KeyedRecords
from glue_jobs.index.table_index import AddedFile
from glue_jobs.index.versions import Versions, from_before, next_to, with_history
from glue_jobs.modes.filling import INFLATION, TooLarge
from glue_jobs.modes.history import by_file
from glue_jobs.table.counts import Counts
from glue_jobs.table.open_table import OpenTable

MOST_BYTES = 128_000_000
"""The bytes of records, or of rows, that the driver takes for one round."""


def placed(
    mode: History, table: OpenTable, files: Staged, counts: Counts, keyed: KeyedFiles, stage_id: str
) -> tuple[Staged, Counts]:
    """Write the records that were set aside as versions, with the rows that these change; and deletes of those where they were.

    Raises TooLarge: nothing was read or written. Suspended, Retryable: as `TableIndex.delete`.
    """
    rule, main, index, rows = keyed.rule, table.main, table.index, keyed.aside
    if rows is None:
        return files, replace(counts, changes=0)
    choose = from_before if mode.by is None else next_to
    records = KeyedRecords.of(rows, rule)
    near = index.near(main, records, rule.key, choose)
    if rows.nbytes + INFLATION * index.bytes_at(near) > MOST_BYTES:
        raise TooLarge
    held = index.rows_at(main, near)
    every = rows
    if held is not None:
        older = held.select(rows.schema.names).cast(rows.schema)
        every = pa.concat_tables([rows, older])
        records = KeyedRecords.together([records, KeyedRecords.of(older, rule)])
    new = np.arange(len(every)) < len(rows)
    before = Versions.of(every, records, new)
    versions = before.with_times(by_offset=mode.by is None)
    if mode.changes:
        every = _filled(every, versions)
    changed = new | (versions.begin != before.begin) | (versions.end != before.end)
    made = with_history(every, versions).filter(pa.array(changed))
    staged, written = loaded(table.services.lake.spark.sparkContext).stage_rows(table, made, rule, stage_id)
    moved = {} if held is None else by_file(held.filter(pa.array(changed[len(rows) :])))
    added = [
        AddedFile(file, each.keys, rule.compared(each), np.ones(len(each.high), bool))
        for file, each in zip(staged.files, written, strict=True)
    ]
    deletes = index.delete_at(main, moved, stage_id, added)
    return replace(staged, deletes=deletes, cpu_s=files.cpu_s), replace(counts, changes=staged.rows)


def _filled(every: pa.Table, versions: Versions) -> pa.Table:
    """Values that a new update lacks are those of the version before, unless that deletes. Else the placeholder stays."""
    for name, lacks, last in versions.known_before(lacking(every)):
        asks = lacks & versions.new & (last >= 0)
        if asks.any():
            values = every[name].take(pa.array(np.where(asks, last, np.arange(len(every)))))
            every = every.set_column(every.schema.get_field_index(name), every.schema.field(name), values)
    return every
