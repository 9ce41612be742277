"""Layouts of tables as tests want them, and files read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from calve.schema.columns import with_ids
from glue_jobs.engines.columnar.layouts import Layout
from glue_jobs.engines.columnar.parquet import Files, Written
from glue_jobs.iceberg.storage import Storage


def layout(columns: Any, **changes: Any) -> Layout:
    """As of a new table, whose columns are numbered here."""
    settings: dict[str, Any] = {
        "columns": with_ids(columns),
        "spec_id": 0,
        "partition": (),
        "order_id": 0,
        "order": (),
        "codec": "zstd",
        "level": 3,
        "batch_bytes": 1 << 27,
        "file_bytes": 1 << 28,
        "page_bytes": 1 << 20,
        "dictionary_bytes": 2 << 20,
        "delta": False,
        "unmeasured": frozenset(),
        "storage": Storage("us-east-1"),
    }
    return Layout(**(settings | changes))


def written(directory: Path, made: Layout, *batches: pa.Table | pa.RecordBatch) -> list[Written]:
    files = Files(made, f"file://{directory}/round-1-0")
    for each in batches:
        files.write(each)
    return files.close()


def read(files: list[Written]) -> pa.Table:
    return pa.concat_tables(pq.read_table(local(each)) for each in files)


def local(file: Written) -> str:
    return file.path.removeprefix("file://")
