"""Position deletes, written without Spark and handed to Iceberg as JSON: its builders cost a millisecond a file.

Format 3 has deletion vectors: a bitmap of positions for one data file, in a Puffin file (https://iceberg.apache.org/puffin-spec).
Each vector has a file of its own: DuckDB 1.5.5 reads wrong rows from some files with several.
Format 2 has a Parquet file with the positions of one data file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyroaring import BitMap64

from calve.names import SYSTEM_COLUMN
from calve.schema.columns import Json
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.storage import Storage, failures
from glue_jobs.process.java import elements, getter, values

MAGIC, BITMAP = b"PFA1", bytes.fromhex("d1d33964")
POSITION, PATH = 2147483545, 2147483546
"""Iceberg's field ids of the columns of position deletes."""
NO_POSITIONS = np.empty(0, np.int64)
_UPLOADS = ThreadPoolExecutor(8, thread_name_prefix="deletes")
"""Kept for the life of the process: each thread has a connection to the JVM."""
COLUMNS = pa.schema([
    pa.field("file_path", pa.dictionary(pa.int32(), pa.string()), nullable=False, metadata={"PARQUET:field_id": str(PATH)}),
    pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION)}),
])  # fmt: skip


class DeleteFile(NamedTuple):
    """kind: its content and format, as Iceberg names them. offset, size: of a deletion vector in the file; else None."""

    path: str
    kind: str
    offset: int | None = None
    size: int | None = None

    @classmethod
    def of_json(cls, its: Json) -> Self:
        """its: a content file of Iceberg's REST catalogs."""
        kind = f"{its['content']} {its['file-format']}".replace("-", "_").upper()
        return cls(its["file-path"], kind, its.get("content-offset"), its.get("content-size-in-bytes"))


class LiveFile(NamedTuple):
    """A data file of a snapshot. rows: also deleted ones. size: bytes. deletes: the delete files that apply to it."""

    number: int
    path: str
    format: str
    rows: int
    size: int
    deletes: tuple[DeleteFile, ...]

    def bytes_of(self, rows: int) -> float:
        """The bytes of so many rows in this file: compressed, all columns."""
        return rows * self.size / max(self.rows, 1)


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The data files of main's snapshot as of the last refresh, by location.

    tasks: scan tasks of a plan in Java, by number. added, deletes: Java's data files and delete files of later commits, by the
    location of the data files that these added or deleted rows from.
    """

    files: Mapping[str, LiveFile]
    tasks: Any
    added: Mapping[str, Any] = field(default_factory=dict)
    deletes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, times: tuple[int, int] | None = None) -> LiveFiles:
        """Reads all manifests. The number of requests to Java does not depend on the number of files.

        times: leave out files without a record between these times, in microseconds, as far as their metrics say.
        """
        scan = table.java.newScan().ignoreResiduals()
        if times is not None:
            since, until = (f"{np.datetime64(each, 'us')}+00:00" for each in times)
            column, terms = f"{SYSTEM_COLUMN}.timestamp", table.iceberg.expressions.Expressions
            scan = scan.filter(terms.greaterThanOrEqual(column, since)).filter(
                terms.lessThanOrEqual(column, until)
            )
        with closing(scan.planFiles()) as planned:
            tasks = table.iceberg.relocated.com.google.common.collect.Lists.newArrayList(planned.iterator())
        file, deletes = _getter(table, "ContentScanTask.file"), _getter(table, "FileScanTask.deletes")
        size_of, each_of = (_getter(table, f"java.util.List.{name}") for name in ("size", "stream"))
        every = iter(_delete_files(table, lambda: tasks.stream().map(deletes).flatMap(each_of)))
        counts = values(table.jvm, tasks.stream(), deletes, size_of)
        applied = [tuple(islice(every, count)) for count in counts]
        facts = _data_files(table, lambda: tasks.stream().map(file))
        found = (LiveFile(n, *each, its) for n, (each, its) in enumerate(zip(facts, applied, strict=True)))
        return cls({each.path: each for each in found}, tasks)

    def changed(
        self, table: Table, added: Iterable[Any], deleting: Iterable[Any], replaced: Iterable[Any]
    ) -> LiveFiles:
        """The same after a commit that has added these data files and delete files, and replaced delete files, all of Java."""
        files, data, deletes = dict(self.files), dict(self.added), dict(self.deletes)
        for each, its in _described(table, added):
            path, kind = its["file-path"], its["file-format"].upper()
            files[path] = LiveFile(-1, path, kind, its["record-count"], its["file-size-in-bytes"], ())
            data[path], deletes[path] = each, ()
        gone = {(str(each.location()), each.contentOffset()) for each in replaced}
        for each, its in _described(table, deleting):
            path = its["referenced-data-file"]
            held = zip(files[path].deletes, self._deletes(path, deletes), strict=True)
            kept = [(one, java) for one, java in held if (one.path, one.offset) not in gone]
            known, java = zip(*kept, (DeleteFile.of_json(its), each), strict=True)
            files[path], deletes[path] = files[path]._replace(deletes=known), java
        return LiveFiles(files, self.tasks, data, deletes)

    def file(self, path: str) -> Any:
        """Java's data file."""
        return self.added.get(path) or self.task(path).file()

    def task(self, path: str) -> Any:
        """The scan task of a file of the plan."""
        return self.tasks.get(self.files[path].number)

    def replaceable(self, table: Table, path: str) -> list[Any]:
        """The delete files of a data file that new ones with all its positions replace: those of this file alone."""
        util = table.jvm.org.apache.iceberg.util.ContentFileUtil
        return [each for each in self._deletes(path, self.deletes) if util.isFileScoped(each)]

    def _deletes(self, path: str, later: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
        return later[path] if path in later else tuple(elements(self.task(path).deletes()))


def _described(table: Table, files: Iterable[Any]) -> Iterator[tuple[Any, Json]]:
    """Each data file or delete file of Java with its content file in JSON, as of Iceberg's REST catalogs, by two requests."""
    specs: dict[int, Any] = {}
    for each in files:
        number = each.specId()
        if number not in specs:
            specs[number] = table.java.specs().get(number)
        yield each, json.loads(table.iceberg.ContentFileParser.toJson(each, specs[number]))


def _getter(table: Table, name: str) -> Any:
    """name: of a class of Iceberg or Java, and its method."""
    gateway: Any = table.lake.spark.sparkContext._gateway
    owner, _, method = name.rpartition(".")
    return getter(gateway, owner if "." in owner else f"org.apache.iceberg.{owner}", method)


def _data_files(table: Table, stream: Callable[[], Any]) -> Iterable[tuple[str, str, int, int]]:
    """Location, format, number of rows and bytes of a stream of data files."""
    names = ("location", "format", "recordCount", "fileSizeInBytes")
    columns = (values(table.jvm, stream(), _getter(table, f"ContentFile.{name}")) for name in names)
    return zip(*columns, strict=True)


def _delete_files(table: Table, stream: Callable[[], Any]) -> Iterable[DeleteFile]:
    names = ("ContentFile.location", "ContentFile.content", "ContentFile.format")
    places = ("DeleteFile.contentOffset", "DeleteFile.contentSizeInBytes")
    columns = (values(table.jvm, stream(), _getter(table, name)) for name in (*names, *places))
    for path, content, kind, offset, size in zip(*columns, strict=True):
        yield DeleteFile(path, f"{content} {kind}", offset, size)


NO_FILES = LiveFiles({}, None)


def write_deletes(
    table: Table, deleted: Mapping[str, BitMap64], data_files: Mapping[str, Any], name: str
) -> list[Any]:
    """Write a delete file for each data file, and return them in this order. No snapshot contains them.

    deleted: all positions to delete, by location of a data file. name: begins the files' names.
    Raises Py4JJavaError, Retryable: the object store failed.
    """
    storage = Storage.of(table.lake.spark)
    put = partial(_put_by_java, table) if storage.names_key else partial(_put, storage)
    vectors = table.format_version > 2
    made, suffix = (_vector, "puffin") if vectors else (_parquet, "parquet")
    written, described = [], []
    touched = _described(table, (data_files[path] for path in deleted))
    for number, ((path, positions), (_, its)) in enumerate(zip(deleted.items(), touched, strict=True)):
        data, facts = made(path, positions)
        target = table.java.locationProvider().newDataLocation(f"{name}-{number}-deletes.{suffix}")
        written.append(_UPLOADS.submit(put, target, data))
        facts |= {name: its[name] for name in ("spec-id", "partition")}
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


def _put(storage: Storage, path: str, data: bytes) -> None:
    """Without the JVM, whose client takes several times the CPU."""
    with failures(), storage.create(path) as stream:
        stream.write(data)


def _put_by_java(table: Table, path: str, data: bytes) -> None:
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


def deleted_positions(file: DeleteFile, path: str, storage: Storage) -> NDArray[np.int64]:
    """The positions that a delete file deletes from the data file of this path."""
    with storage.open(file.path) as source:
        if file.size is not None:
            return np.asarray(positions_of(source.read_at(file.size, file.offset)).to_array(), np.int64)
        rows = pq.read_table(source, columns=["file_path", "pos"])
    found: NDArray[np.int64] = rows.filter(pc.equal(rows["file_path"], path))["pos"].to_numpy()
    return found


def deleted_by(table: Table, snapshot: Any, storage: Storage) -> dict[str, NDArray[np.int64]]:
    """The positions of rows that a commit of calve deleted, by the location of the data file, without rows that it added itself.

    snapshot: Java's. A new delete file has all positions of its data file, also those of the delete file that it replaces.
    """
    io = table.java.io()
    own = {str(each.location()) for each in elements(snapshot.addedDataFiles(io))}
    added, removed = (
        _by_data_file(table, elements(each))
        for each in (snapshot.addedDeleteFiles(io), snapshot.removedDeleteFiles(io))
    )
    found: dict[str, NDArray[np.int64]] = {}
    for path in added.keys() - own:
        after, before = (
            [deleted_positions(each, path, storage) for each in files.get(path, ())]
            for files in (added, removed)
        )
        new = np.setdiff1d(np.concatenate(after), np.concatenate([NO_POSITIONS, *before]))
        found |= {path: new} if len(new) else {}
    return found


def _by_data_file(table: Table, files: Iterable[Any]) -> dict[str, list[DeleteFile]]:
    found: dict[str, list[DeleteFile]] = {}
    for _, its in _described(table, files):
        found.setdefault(its.get("referenced-data-file"), []).append(DeleteFile.of_json(its))
    return found


def _parquet(path: str, positions: BitMap64) -> tuple[bytes, Json]:
    """A Parquet file with the positions, and the bounds of its paths, by which readers find it."""
    found = np.asarray(positions.to_array(), np.int64)
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(found), np.int32), [path])
    rows = pa.table([paths, found], schema=COLUMNS)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, COLUMNS, compression="zstd", use_dictionary=["file_path"], store_schema=False,
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
    ) as writer:  # fmt: skip
        writer.write_table(rows)
    bound = {"keys": [PATH], "values": [path.encode().hex().upper()]}
    return sink.getvalue().to_pybytes(), {"lower-bounds": bound, "upper-bounds": bound}
