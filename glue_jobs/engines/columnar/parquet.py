"""Write rows as Parquet data files of an Iceberg table. No snapshot contains them yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from calve.errors import Fatal
from calve.table.digests import Sums, together
from glue_jobs.columns.digest import sums_of
from glue_jobs.decode.machines.change_events import lacking
from glue_jobs.engines.columnar.arranging import arranged
from glue_jobs.engines.columnar.layouts import FLOATS, Layout, Leaf, leaves, schema
from glue_jobs.iceberg.storage import failures
from glue_jobs.index.decision import NO_RECORDS, KeyedRecords, KeyRule

MAGIC, FOOTER_END = b"PAR1", 8
"""What a Parquet file begins with; and the bytes after its metadata: their length, and `MAGIC` again."""


@dataclass(frozen=True, slots=True)
class Written:
    """A data file.

    footer: the file's metadata as Thrift. partition: its tuple in Iceberg's JSON, or None.
    splits: where row groups begin. nans: the number of NaN values by column id.
    records: of a table by key, those of its rows, by position.
    """

    path: str
    size: int
    rows: int
    footer: bytes
    partition: str | None
    splits: tuple[int, ...]
    nans: dict[int, int]
    records: KeyedRecords | None = None


class Files:
    """The data files of one task. Their names begin with `location`, which is unique to this attempt.

    Rows are gathered up to `Layout.batch_bytes` of Arrow, then written as one row group.
    If the table is partitioned or sorted, each batch is arranged first, and each partition is a file.
    Only one file is open at a time. So memory is at most three batches and one row group, for any number of partitions,
    and all rows that the task sets aside.
    rule: of a table by key; of each batch, only rows that may stay are written. seen: is given all rows that are written.
    digested: `sums` has the sums of all rows.
    changes: rows are changes of a database. All rows of keys with a row that lacks values are set aside, not written.
    """

    def __init__(
        self,
        layout: Layout,
        location: str,
        rule: KeyRule | None = None,
        seen: Callable[[pa.Table], None] = lambda _: None,
        *,
        digested: bool = False,
        changes: bool = False,
    ) -> None:
        self.sums: Sums | None = {} if digested else None
        self._layout = layout
        self._location = location
        self._rule = rule
        self._seen = seen
        self._changes = changes
        self._aside: list[pa.Table] = []
        self._deletions: list[KeyedRecords] = []
        self._leaves = leaves(layout.columns)
        self._schema = schema(layout.columns)
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._encodings: dict[str, str] | None = None
        self._file: _File | None = None
        self._written: list[Written] = []
        self._count = 0

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Write rows with columns of the table, in any order. Missing columns are null.

        Raises Retryable: the object store fails. Fatal: a column is not in the table or has another type.
        """
        table = self._fitted(pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows)
        if not table.num_rows:
            return
        if self.sums is not None:
            self.sums = together([self.sums, sums_of(table)])
        self._pending.append(table)
        self._pending_bytes += table.nbytes
        if self._pending_bytes >= self._layout.batch_bytes:
            self._flush()

    def delete(self, rows: pa.Table) -> None:
        """Take records that delete the rows of their keys. They decide about the rows of this batch, too."""
        assert self._rule is not None, "no record deletes a row without a key"  # noqa: S101
        self._deletions.append(KeyedRecords.of(rows, self._rule, deletes=True))

    def set_aside(self, rows: pa.Table) -> None:
        """Take rows that another has yet to complete and write. Raises Fatal: as `write`."""
        self._aside.append(self._fitted(rows))

    @property
    def deletions(self) -> KeyedRecords:
        """Those of the records to `delete` that no written row replaces."""
        return KeyedRecords.together(self._deletions)

    @property
    def aside(self) -> pa.Table | None:
        """The rows set aside; None: there are none."""
        return pa.concat_tables(self._aside) if self._aside else None

    def close(self) -> list[Written]:
        """The written files, once they are all in the object store. Raises Retryable: the object store fails."""
        self._flush()
        self._finish()
        return self._written

    def abort(self) -> None:
        """Stop uploads. Files already in the object store belong to no table, and `engine.sweep` deletes them."""
        self._pending.clear()
        if self._file:
            self._file.drop()

    def _fitted(self, rows: pa.Table) -> pa.Table:
        if unknown := set(rows.column_names) - set(self._schema.names):
            raise Fatal(f"the table has no column {', '.join(sorted(unknown))}")
        columns = []
        for each in self._schema:
            held = (
                rows.column(each.name) if each.name in rows.column_names else pa.nulls(len(rows), each.type)
            )
            try:
                columns.append(held if held.type.equals(each.type) else held.cast(each.type))
            except pa.ArrowException:  # whose message would show a value
                raise Fatal(f"column {each.name} is {held.type}, not {each.type}") from None
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending, self._pending_bytes = [], 0
        if self._rule is not None:
            rows = self._kept(rows, self._rule)
            if not len(rows):
                return
        self._seen(rows)
        if self._encodings is None:
            found = ((each.path, encoding_of(each, rows, self._layout)) for each in self._leaves)
            self._encodings = {path: encoding for path, encoding in found if encoding}
        if self._layout.partition or self._layout.order:
            for partition, part in arranged(rows, self._layout):
                self._append(part, self._encodings, partition)
                self._finish()
        else:
            self._append(rows, self._encodings, None)

    def _kept(self, rows: pa.Table, rule: KeyRule) -> pa.Table:
        deletions = self.deletions
        every = KeyedRecords.together([KeyedRecords.of(rows, rule), deletions])
        kept = rule.kept_in_part(every)
        self._deletions = [deletions.take(kept[len(rows) :])]
        if self._changes and (lacks := lacking(rows)):
            found = reduce(np.logical_or, lacks.values())
            apart = np.isin(every.high, every.high[: len(rows)][found])
            self._aside.append(rows.filter(pa.array(apart[: len(rows)])))
            kept &= ~apart
        return rows if kept[: len(rows)].all() else rows.filter(pa.array(kept[: len(rows)]))

    def _append(self, rows: pa.Table, encodings: dict[str, str], partition: str | None) -> None:
        if self._file is None:
            path = f"{self._location}-{self._count:05d}.parquet"
            self._file = _File(
                self._layout, path, rows.schema, encodings, self._leaves, partition, self._rule
            )
            self._count += 1
        self._file.write(rows)
        if self._file.size >= self._layout.file_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._file:
            self._written.append(self._file.close())
            self._file = None


class _File:
    def __init__(
        self,
        layout: Layout,
        path: str,
        fields: pa.Schema,
        encodings: dict[str, str],
        parts: list[Leaf],
        partition: str | None,
        rule: KeyRule | None,
    ) -> None:
        self._path = path
        self._rule = rule
        self._records = [NO_RECORDS]
        self._partition = partition
        measured = [each for each in parts if each.id not in layout.unmeasured]
        self._real = [each for each in measured if each.kind in FLOATS and not each.repeated]
        self._nans = dict.fromkeys((each.id for each in self._real), 0)
        self._footers: list[pq.FileMetaData] = []
        self._sink = layout.storage.create(path)
        self._writer = pq.ParquetWriter(
            self._sink,
            fields,
            compression=layout.codec,
            compression_level=layout.level,
            use_dictionary=[path for path, each in encodings.items() if each == DICTIONARY],
            column_encoding={path: each for path, each in encodings.items() if each != DICTIONARY},
            write_statistics=[each.path for each in measured],
            data_page_size=layout.page_bytes,
            data_page_version="2.0" if layout.delta else "1.0",
            dictionary_pagesize_limit=layout.dictionary_bytes,
            store_decimal_as_integer=True,
            store_schema=False,
            write_page_index=True,
            metadata_collector=self._footers,
        )

    @property
    def size(self) -> int:
        """Bytes of the row groups so far."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        with failures():
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        if self._rule is not None:
            self._records.append(KeyedRecords.of(rows, self._rule))
        for leaf in self._real:
            self._nans[leaf.id] += sum(pc.sum(pc.is_nan(each)).as_py() or 0 for each in leaf.values(rows))

    def close(self) -> Written:
        with failures():
            self._writer.close()
            size = self.size
            self._sink.close()
        (footer,) = self._footers
        alone = pa.BufferOutputStream()
        footer.write_metadata_file(alone)
        firsts = (footer.row_group(at).column(0) for at in range(footer.num_row_groups))
        return Written(
            path=self._path,
            size=size,
            rows=footer.num_rows,
            footer=alone.getvalue()[len(MAGIC) : -FOOTER_END].to_pybytes(),
            partition=self._partition,
            splits=tuple(each.dictionary_page_offset or each.data_page_offset for each in firsts),
            nans=self._nans,
            records=KeyedRecords.together(self._records) if self._rule is not None else None,
        )

    def drop(self) -> None:
        with suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()
            self._sink.close()


SAMPLE, FEW = 4_096, 500
NEIGHBOURS = 64
WHOLE = frozenset({"int", "long", "date", "timestamp", "timestamptz"})
TEXTS = frozenset({"string", "binary"})


DICTIONARY = "RLE_DICTIONARY"


def encoding_of(leaf: Leaf, rows: pa.Table, layout: Layout) -> str | None:
    """The encoding of a column; None: plain.

    Columns in a struct, list or map may be delta-encoded: readers read them row by row and know every encoding.
    Other columns have a dictionary or are plain, unless the table uses Parquet's data pages of version 2.
    Iceberg's vectorised readers before 1.11 refuse delta encodings. Few rows are not looked at: that took longer than the rest.
    """
    nested = len(leaf.way) > 1
    if nested and leaf.kind in WHOLE:
        return "DELTA_BINARY_PACKED"
    if rows.num_rows < FEW:
        return DICTIONARY
    values = pa.chunked_array(leaf.values(rows))
    if repeats(values, layout.dictionary_bytes):
        return DICTIONARY
    if layout.delta and leaf.kind in WHOLE:
        return "DELTA_BINARY_PACKED"
    delta = (layout.delta or nested) and leaf.kind in TEXTS and _alike(values)
    return "DELTA_BYTE_ARRAY" if delta else None


def repeats(values: pa.ChunkedArray, dictionary_bytes: int) -> bool:
    """Whether values repeat often, and the distinct ones fit into a dictionary.

    The sample covers all rows, because neighbouring values are more often alike.
    """
    step = 1 + len(values) // SAMPLE
    # Chunk by chunk, because Arrow concatenates all chunks for one `take` over them.
    sample = [each.take(pa.array(np.arange(0, len(each), step))) for each in values.chunks]
    held = pa.chunked_array(sample, values.type).drop_null()
    count = len(held)
    different = pc.count_distinct(held).as_py()
    if different * 2 <= count:
        return True
    twice = count - different
    likely = count * count / (2 * twice) if twice else len(values)
    return bool(likely * 2 <= len(values) and likely * held.nbytes / count <= dictionary_bytes)


def _alike(values: pa.ChunkedArray) -> bool:
    """Whether most of a text equals the start of the previous one."""
    first = values.slice(0, NEIGHBOURS).drop_null().cast(pa.binary())
    texts = pc.binary_slice(first, 0, NEIGHBOURS).to_pylist()
    pairs = (zip(*pair, strict=False) for pair in pairwise(texts))
    shared = sum(len(list(takewhile(lambda both: both[0] == both[1], each))) for each in pairs)
    return shared * 2 > sum(map(len, texts))
