"""A database of the records of a topic, in memory, and on disk if they are many."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa

from cli.verify.counts import Key
from cli.verify.rows import ByFile, Rows

MEMORY = "1GB"
BATCH_ROWS = 100_000


def places_of(rows: Rows) -> dict[str, Any]:
    """The key of each row, and its place, as columns of a table."""
    partitions, offsets = rows.partitions.cast(pa.int64()), rows.offsets.cast(pa.int64())
    return {"key": rows.keys, "partition": partitions, "offset": offsets}


class Store:
    """The fold of a mode: add all records of a topic; then it has the rows that the table must have.

    Its tables are DuckDB's, each with the columns of the first rows that are inserted.
    """

    def __init__(self) -> None:
        # DuckDB makes the folder when it needs it, and removes it.
        folder = str(Path(gettempdir(), f"calve-verify-{uuid4().hex}"))
        self._database = duckdb.connect(config={"temp_directory": folder, "memory_limit": MEMORY})

    def rows(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def places(self, among: Collection[Key] | None = None) -> set[Key]:
        """The places of these rows. among: only of these."""
        batches = (each.select([0, 1]).to_pydict().values() for each in self.rows())
        places = (place for each in batches for place in zip(*each, strict=True))
        return {place for place in places if among is None or place in among}

    def insert(self, table: str, rows: pa.Table) -> None:
        self._database.register("given", rows)
        self._database.execute(f"create table if not exists {table} as select * from given limit 0")  # noqa: S608 a name
        self._database.execute(f"insert into {table} from given")

    def execute(self, text: str) -> None:
        self._database.execute(text)

    def query(self, text: str, **tables: pa.Table) -> Any:
        """The answer to a query, also of other tables than those of the store."""
        for name, each in tables.items():
            self._database.register(name, each)
        return self._database.sql(text).to_arrow_table()

    def read(self, text: str) -> Iterator[pa.RecordBatch]:
        """As `query`, batch by batch."""
        yield from self._database.sql(text).to_arrow_reader(BATCH_ROWS)

    def has(self, table: str) -> bool:
        return bool(self._database.execute("from duckdb_tables() where table_name = ?", [table]).fetchall())

    def by_file(self, text: str, **tables: pa.Table) -> ByFile:
        """The offsets of a query's rows, by file and partition."""
        found: ByFile = {}
        for row in self.query(text, **tables).to_pylist():
            found.setdefault((row["file"], row["partition"]), []).append(row["offset"])
        return found
