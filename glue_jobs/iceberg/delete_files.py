"""Position deletes, written without Spark and handed to Iceberg as JSON: its builders cost a millisecond a file.

Format 3 has deletion vectors: a bitmap of positions for one data file, in a Puffin file (https://iceberg.apache.org/puffin-spec).
Each vector has a file of its own: DuckDB 1.5.5 reads wrong rows from some files with several.
Format 2 has a Parquet file with the positions of one data file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, starmap
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from calve.names import SYSTEM_COLUMN
from calve.schema.columns import Json
from glue_jobs.iceberg.catalog import Table
from glue_jobs.process.java import elements, getter, values

MAGIC, BITMAP = b"PFA1", bytes.fromhex("d1d33964")
POSITION, PATH = 2147483545, 2147483546
"""Iceberg's field ids of the columns of position deletes."""
_UPLOADS = ThreadPoolExecutor(8, thread_name_prefix="deletes")
"""Kept for the life of the process: each thread has a connection to the JVM."""
COLUMNS = pa.schema([
    pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH)}),
    pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION)}),
])  # fmt: skip


class DeleteFile(NamedTuple):
    """kind: its content and format, as Iceberg names them. offset, size: of a deletion vector in the file; else None."""

    path: str
    kind: str
    offset: int | None = None
    size: int | None = None


class LiveFile(NamedTuple):
    """A data file of a snapshot. rows: also deleted ones. deletes: the delete files that apply to it."""

    number: int
    path: str
    format: str
    rows: int
    deletes: tuple[DeleteFile, ...]


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The data files of main's snapshot as of the last refresh, by location. tasks: their scan tasks, by number, in Java."""

    files: Mapping[str, LiveFile]
    tasks: Any

    @classmethod
    def of(cls, table: Table, times: tuple[int, int] | None = None) -> LiveFiles:
        """The number of requests to Java does not depend on the number of files.

        times: leave out files without a record between these times, in microseconds, as far as their metrics say.
        """
        gateway: Any = table.lake.spark.sparkContext._gateway
        lists = table.iceberg.relocated.com.google.common.collect.Lists
        scan = table.java.newScan().ignoreResiduals()
        if times is not None:
            since, until = (f"{np.datetime64(each, 'us')}+00:00" for each in times)
            column, terms = f"{SYSTEM_COLUMN}.timestamp", table.iceberg.expressions.Expressions
            scan = scan.filter(terms.greaterThanOrEqual(column, since)).filter(
                terms.lessThanOrEqual(column, until)
            )
        with closing(scan.planFiles()) as planned:
            tasks = lists.newArrayList(planned.iterator())

        def get(owner: str, name: str) -> Any:
            return getter(gateway, f"org.apache.iceberg.{owner}", name)

        file, deletes = get("ContentScanTask", "file"), get("FileScanTask", "deletes")
        size_of, each_of = (getter(gateway, "java.util.List", name) for name in ("size", "stream"))

        def of_files(name: str) -> list[Any]:
            return values(table.jvm, tasks.stream(), file, get("ContentFile", name))

        def of_deletes(name: str, owner: str = "ContentFile") -> list[Any]:
            return values(table.jvm, tasks.stream().map(deletes).flatMap(each_of), get(owner, name))

        kinds = map(" ".join, zip(of_deletes("content"), of_deletes("format"), strict=True))
        places = of_deletes("contentOffset", "DeleteFile"), of_deletes("contentSizeInBytes", "DeleteFile")
        every = starmap(DeleteFile, zip(of_deletes("location"), kinds, *places, strict=True))
        counts = values(table.jvm, tasks.stream(), deletes, size_of)
        applied = [tuple(islice(every, count)) for count in counts]
        columns = of_files("location"), of_files("format"), of_files("recordCount"), applied
        found = starmap(LiveFile, zip(range(len(counts)), *columns, strict=True))
        return cls({each.path: each for each in found}, tasks)

    def task(self, path: str) -> Any:
        return self.tasks.get(self.files[path].number)

    def replaceable(self, table: Table, path: str) -> list[Any]:
        """The delete files of a data file that new ones with all its positions replace: those of this file alone."""
        util = table.jvm.org.apache.iceberg.util.ContentFileUtil
        return [each for each in elements(self.task(path).deletes()) if util.isFileScoped(each)]


NO_FILES = LiveFiles({}, None)


def write_deletes(
    table: Table, deleted: Mapping[str, BitMap64], data_files: Mapping[str, Any], name: str
) -> list[Any]:
    """Write a delete file for each data file, and return them in this order. No snapshot contains them.

    deleted: all positions to delete, by location of a data file. name: begins the files' names.
    Raises Py4JJavaError: the object store failed.
    """
    vectors = table.format_version > 2
    made, suffix = (_vector, "puffin") if vectors else (_parquet, "parquet")
    written, described = [], []
    for number, (path, positions) in enumerate(deleted.items()):
        data, facts = made(path, positions)
        target = table.java.locationProvider().newDataLocation(f"{name}-{number}-deletes.{suffix}")
        written.append(_UPLOADS.submit(_put, table, target, data))
        facts |= _place_of(table, data_files[path])
        described.append(facts | {
            "content": "position-deletes",
            "file-path": target,
            "file-format": suffix,
            "file-size-in-bytes": len(data),
            "record-count": len(positions),
            "referenced-data-file": path,
        })  # fmt: skip
    for each in written:
        each.result()
    iceberg = table.jvm.org.apache.iceberg
    mapper = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
    node = mapper.readTree(json.dumps({"delete-files": described}))
    return list(elements(iceberg.rest.TableScanResponseParser.parseDeleteFiles(node, table.java.specs())))


def _place_of(table: Table, data_file: Any) -> Json:
    """The partition spec and the partition of a data file."""
    iceberg = table.jvm.org.apache.iceberg
    spec = table.java.specs().get(data_file.specId())
    described = json.loads(iceberg.ContentFileParser.toJson(data_file, spec))
    return {name: described[name] for name in ("spec-id", "partition")}


def _put(table: Table, path: str, data: bytes) -> None:
    stream = table.java.io().newOutputFile(path).createOrOverwrite()
    try:
        stream.write(data)
    finally:
        stream.close()


def _vector(path: str, positions: BitMap64) -> tuple[bytes, Json]:
    """A Puffin file with one deletion vector, and where the vector lies in it."""
    body = BITMAP + positions.serialize()
    blob = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    about = {
        "type": "deletion-vector-v1",
        "fields": [POSITION],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": len(MAGIC),
        "length": len(blob),
        "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
    }
    footer = json.dumps({"blobs": [about], "properties": {"created-by": "calve"}}).encode()
    data = MAGIC + blob + MAGIC + footer + struct.pack("<i", len(footer)) + bytes(4) + MAGIC
    return data, {"content-offset": len(MAGIC), "content-size-in-bytes": len(blob)}


def positions_of(vector: bytes) -> BitMap64:
    """The positions in the blob of a deletion vector."""
    return BitMap64.deserialize(vector[4 + len(BITMAP) : -4])


def _parquet(path: str, positions: BitMap64) -> tuple[bytes, Json]:
    """A Parquet file with the positions, and the bounds of its paths, by which readers find it."""
    found = np.asarray(positions.to_array(), np.int64)
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(found), np.int32), [path])
    rows = pa.table([paths.cast(pa.string()), found], schema=COLUMNS)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, COLUMNS, compression="zstd", use_dictionary=["file_path"], store_schema=False,
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
    ) as writer:  # fmt: skip
        writer.write_table(rows)
    bound = {"keys": [PATH], "values": [path.encode().hex().upper()]}
    return sink.getvalue().to_pybytes(), {"lower-bounds": bound, "upper-bounds": bound}
