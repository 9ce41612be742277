"""An Iceberg table as Delta has it: its columns, the bounds of its files, and what a snapshot changes by its manifests.

Only this module uses PyIceberg's internals.

No column mapping: DuckDB and deltalake search a Parquet file's columns by name, also where a log says ids, and read null where
the name is another. So files must have the names of the table (`renamed`; ADR 77).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq
import pyiceberg.io.pyarrow as internals
from pyiceberg import types
from pyiceberg.avro.file import AvroFile
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema, index_name_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, NestedField
from pyroaring import BitMap64

from calve.errors import Fatal

_NAMES: dict[type[IcebergType], str] = {
    types.BooleanType: "boolean",
    types.IntegerType: "integer",
    types.LongType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.StringType: "string",
    types.BinaryType: "binary",
    types.FixedType: "binary",
    types.UUIDType: "binary",
    types.DateType: "date",
    types.TimestampType: "timestamp_ntz",
    types.TimestamptzType: "timestamp",
}


def schema_string(schema: Schema) -> str:
    """The schema as JSON. Raises Fatal: a column's type is none of Delta's, or it has a default that is in no file."""
    return json.dumps(_struct(schema.fields, ""), separators=(",", ":"))


def _struct(fields: Iterable[NestedField], path: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field(each, f"{path}{each.name}") for each in fields]}


def _field(field: NestedField, path: str) -> dict[str, Any]:
    if field.initial_default is not None:
        raise Fatal(f"column {path} has a default that older files do not have", fix="compact the table")
    return {
        "name": field.name,
        "type": _type(field.field_type, path),
        "nullable": not field.required,
        "metadata": {"comment": field.doc} if field.doc else {},
    }


def _type(kind: IcebergType, path: str) -> Any:
    match kind:
        case types.StructType():
            return _struct(kind.fields, f"{path}.")
        case types.ListType():
            element = _type(kind.element_type, f"{path}.element")
            return {"type": "array", "elementType": element, "containsNull": not kind.element_required}
        case types.MapType():
            return {
                "type": "map",
                "keyType": _type(kind.key_type, f"{path}.key"),
                "valueType": _type(kind.value_type, f"{path}.value"),
                "valueContainsNull": not kind.value_required,
            }
        case types.DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
    if type(kind) not in _NAMES:
        raise Fatal(f"column {path}: Delta has no type for {kind}", fix="read the table as Iceberg")
    return _NAMES[type(kind)]


def reader_features(columns: str, *, vectors: bool) -> set[str]:
    """The features of the protocol that a reader needs for the rows. columns: as `schema_string`."""
    found = {"deletionVectors"} if vectors else set()
    return found | ({"timestampNtz"} if '"timestamp_ntz"' in columns else set())


def renamed(schemas: Iterable[Schema], now: Schema) -> bool:
    """Whether a column of `now` ever had another name, or its name was another column's."""
    names = index_name_by_id(now)
    return any(differs(names, index_name_by_id(each)) for each in schemas)


def differs(names: Mapping[int, str], others: Mapping[int, str]) -> bool:
    """Whether a column has two names, or a name belongs to two columns. Both sides: names of columns by field id."""
    ids = {name: id for id, name in names.items()}
    return any(names.get(id, name) != name or ids.get(name, id) != id for id, name in others.items())


_BOUNDED = (
    types.IntegerType,
    types.LongType,
    types.StringType,
    types.DateType,
    types.TimestampType,
    types.TimestamptzType,
)


def stats_of(file: DataFile, schema: Schema) -> str:
    """Row count, null counts and bounds, by which readers skip files. Bounds may be wide: Iceberg cuts long texts.

    Floats have no bounds: Iceberg's leave out NaN, which Delta takes for the greatest number.
    """
    found: dict[str, Any] = {"numRecords": file.record_count, "tightBounds": False}
    sides = {"minValues": file.lower_bounds, "maxValues": file.upper_bounds}
    for path, field in _leaves(schema.fields):
        nulls = (file.null_value_counts or {}).get(field.field_id)
        if nulls is not None:
            _put(found, ("nullCount", *path), nulls)
        for side, bounds in sides.items():
            raw = (bounds or {}).get(field.field_id)
            if raw is not None and isinstance(field.field_type, _BOUNDED):
                bound = _written(field.field_type, raw, upper=side == "maxValues")
                if bound is not None:
                    _put(found, (side, *path), bound)
    return json.dumps(found, separators=(",", ":"))


def _leaves(
    fields: Iterable[NestedField], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], NestedField]]:
    for each in fields:
        if isinstance(each.field_type, types.StructType):
            yield from _leaves(each.field_type.fields, (*path, each.name))
        elif not isinstance(each.field_type, (types.ListType, types.MapType)):
            yield (*path, each.name), each


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _written(kind: IcebergType, raw: bytes, *, upper: bool) -> Any:
    """A bound as Delta writes it; times to the millisecond, upper ones to the next. None: Delta cannot write the time."""
    value: Any = from_bytes(kind, raw)  # type: ignore[arg-type]
    if isinstance(kind, types.DateType):
        return _instant(value * 86_400_000, "%Y-%m-%d")
    if isinstance(kind, types.TimestampType | types.TimestamptzType):
        written = _instant(-(-value // 1000) if upper else value // 1000, "%Y-%m-%dT%H:%M:%S.%f")
        zone = "Z" if isinstance(kind, types.TimestamptzType) else ""
        return written and f"{written[:-3]}{zone}"
    return value


def _instant(millis: int, form: str) -> str | None:
    try:
        return f"{EPOCH + timedelta(milliseconds=millis):{form}}"
    except OverflowError:
        return None


def _put(into: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *folders, last = path
    for each in folders:
        into = into.setdefault(each, {})
    into[last] = value


REFERENCED = [each.name for each in DATA_FILE_TYPE[3].fields].index("referenced_data_file")
PATH_FIELD = 2_147_483_546
"""The field id of the column with a data file's path, in a file of position deletes."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Data files that come and go, and other files whose deleted rows change; by location.

    deletes: whether rows of files are deleted, also of added ones.
    """

    added: Mapping[str, DataFile]
    gone: frozenset[str]
    touched: frozenset[str]
    deletes: bool = True


@dataclass(frozen=True)
class Lake:
    """A table's files. io: of PyIceberg."""

    io: FileIO
    metadata: TableMetadata

    def changes(self, snapshot: Snapshot) -> Changes:
        """What this snapshot changed of its parent: the entries that it wrote itself."""
        added: dict[str, DataFile] = {}
        gone: set[str] = set()
        touched: set[str] = set()
        own = [each for each in snapshot.manifests(self.io) if each.added_snapshot_id == snapshot.snapshot_id]
        for manifest in own:
            for entry in self._entries(manifest):
                if entry.status is ManifestEntryStatus.EXISTING:
                    continue
                file = entry.data_file
                if file.content is not DataFileContent.DATA:
                    only = _only(file)
                    touched |= {only} if only else self._positions(file).keys()
                elif entry.status is ManifestEntryStatus.ADDED:
                    added[file.file_path] = file
                else:
                    gone.add(file.file_path)
        others = frozenset(touched - added.keys() - gone)
        return Changes(added, frozenset(gone), others, deletes=bool(touched))

    def data_files(self, snapshot: Snapshot) -> Iterator[DataFile]:
        """All data files of a snapshot."""
        for manifest in snapshot.manifests(self.io):
            if manifest.content is ManifestContent.DATA:
                yield from self._live(manifest)

    def deleted(self, snapshot: Snapshot, paths: AbstractSet[str]) -> dict[str, BitMap64]:
        """The deleted positions of these data files at a snapshot, by location.

        Raises Fatal: the table has equality deletes, which Delta does not know.
        """
        found: dict[str, BitMap64] = defaultdict(BitMap64)
        for file in self._delete_files(snapshot):
            if (only := _only(file)) is None or only in paths:
                for path, positions in self._positions(file).items():
                    if path in paths:
                        found[path] |= positions
        return found

    def _delete_files(self, snapshot: Snapshot) -> Iterator[DataFile]:
        for manifest in snapshot.manifests(self.io):
            if manifest.content is ManifestContent.DELETES:
                yield from self._live(manifest)

    def _live(self, manifest: ManifestFile) -> Iterator[DataFile]:
        gone = ManifestEntryStatus.DELETED
        return (each.data_file for each in self._entries(manifest) if each.status is not gone)

    def _entries(self, manifest: ManifestFile) -> Iterator[ManifestEntry]:
        """As `ManifestFile.fetch_manifest_entry`, with the fields of format 3: of a vector, the data file that it is about."""
        with AvroFile[ManifestEntry](
            self.io.new_input(manifest.manifest_path),
            MANIFEST_ENTRY_SCHEMAS[3],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as reader:
            for entry in reader:
                yield _inherit_from_manifest(entry, manifest)

    def _positions(self, file: DataFile) -> dict[str, BitMap64]:
        if file.content is DataFileContent.EQUALITY_DELETES:
            why = "the table has equality deletes, which Delta does not know"
            raise Fatal(why, fix="compact the table, and delete rows by position")
        found = internals._read_deletes(self.io, file)
        if file.file_format is FileFormat.PUFFIN and (only := _only(file)):
            found = {only: found[only]}  # one object may hold the vectors of many files
        return {path: BitMap64(chunks.to_numpy()) for path, chunks in found.items()}

    def names_differ(self, file: DataFile, schema: Schema) -> bool:
        """Whether a data file was written under another name of a column."""
        with self.io.new_input(file.file_path).open() as stream:
            held = internals.pyarrow_to_schema(
                pq.read_schema(stream),
                self.metadata.name_mapping(),
                downcast_ns_timestamp_to_us=True,
                format_version=self.metadata.format_version,
            )
        return differs(index_name_by_id(schema), index_name_by_id(held))


def _only(file: DataFile) -> str | None:
    """The one data file that a file of deletes is about; None: they may be many."""
    if about := file._data[REFERENCED]:
        return str(about)
    low, high = ((each or {}).get(PATH_FIELD) for each in (file.lower_bounds, file.upper_bounds))
    return low.decode() if low and low == high else None
