"""Values decoded without the engine: by fastavro or the json module, then projected by name on the table's columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from io import BytesIO
from itertools import count
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from calve import registry
from calve.names import SYSTEM_COLUMN
from cli.verify import json_text
from cli.verify.conversion import Schema, Unreadable, bytes_alone, field_converters, resolved
from cli.verify.json_schema import Schemas, filled
from cli.verify.protobuf_values import Values
from cli.verify.renames import Renames
from cli.verify.topic import Records

FRAME_BYTES = 5
MISFIT = (pa.ArrowException, ArithmeticError)
"""What Arrow and the converters raise for a decoded value that is too large for its column."""


class Decoder:
    """Decodes the records of one topic into the columns of one table.

    `columns` is the table's Arrow schema, `_kafka` included; `schema_of` looks up a registry id; `renames` are those that the
    subject's versions declare.
    """

    def __init__(
        self,
        columns: pa.Schema,
        topic: str,
        schema_of: Callable[[int], registry.Schema | None],
        renames: Renames = MappingProxyType({}),
    ) -> None:
        self.columns = columns
        self._renames = renames
        self._topic = topic
        self._schema_of = schema_of
        self._writers: dict[bytes, _Writer | str] = {}

    def rows(self, records: Records) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        """Rows of the records that can be decoded, and (place, reason) of those that cannot."""
        decoded: dict[bytes, tuple[list[int], list[Any]]] = {}
        refused = []
        for place, value in enumerate(records.values):
            try:
                writer, row = self._decode(value)
            except Unreadable as verdict:
                refused.append((place, verdict.reason))
                continue
            places, found = decoded.setdefault(writer.frame, ([], []))
            places.append(place)
            found.append(row)
        batches = []
        for frame, (places, found) in decoded.items():
            writer = self._writer(frame)
            for kept, values in self._convertible(writer, places, found, refused):
                batches.append(self._batch(records.select(kept), values, writer.schema_id))
        return batches, refused

    def verdict(self, value: bytes | None) -> str | None:
        """Why a record with this value is no row; None where it is one."""
        try:
            writer, row = self._decode(value)
            writer.project([row])
        except Unreadable as verdict:
            return verdict.reason
        except MISFIT:
            return "malformed"
        return None

    def _decode(self, value: bytes | None) -> tuple[_Writer, Any]:
        if value is None:
            raise Unreadable("null_value")
        if len(value) < FRAME_BYTES:
            raise Unreadable("truncated")
        if value[0] != 0:
            raise Unreadable("bad_magic")
        writer = self._writer(value[:FRAME_BYTES])
        return writer, writer.decode(value)

    def _writer(self, frame: bytes) -> _Writer:
        found = self._writers.get(frame)
        if found is None:
            found = self._writers[frame] = self._look_up(frame)
        if isinstance(found, str):
            raise Unreadable(found)
        return found

    def _look_up(self, frame: bytes) -> _Writer | str:
        schema = self._schema_of(int.from_bytes(frame[1:], "big"))
        if schema is None:
            return "unknown_schema_id"
        try:
            if schema.type == "JSON":
                return _JsonWriter(frame, schema, self.columns, self._renames)
            if schema.type == "PROTOBUF":
                return _ProtobufWriter(frame, schema, self.columns, self._renames)
            return _AvroWriter(frame, schema, self.columns, self._renames)
        except (
            Unreadable,
            SchemaParseException,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            return "incompatible_schema"

    def _convertible(
        self, writer: _Writer, places: list[int], found: list[Any], refused: list[tuple[int, str]]
    ) -> Iterable[tuple[list[int], list[Any]]]:
        """The columns of all rows at once or, where a value fits no column (an int of 64 bits), of each row that has none."""
        try:
            return [(places, writer.project(found))]
        except MISFIT:
            kept = []
            for place, row in zip(places, found, strict=True):
                try:
                    kept.append(([place], writer.project([row])))
                except MISFIT:
                    refused.append((place, "malformed"))
            return kept

    def _batch(self, records: Records, values: list[Any], schema_id: int) -> pa.RecordBatch:
        kafka = kafka_struct(self.columns.field(SYSTEM_COLUMN).type, records, self._topic, schema_id)
        arrays = iter(values)
        columns = [kafka if name == SYSTEM_COLUMN else next(arrays) for name in self.columns.names]
        return pa.record_batch(columns, schema=self.columns)


class _Writer(Protocol):
    """One registered schema: reads its values and lays them out as columns."""

    frame: bytes
    schema_id: int

    def decode(self, value: bytes) -> Any: ...

    def project(self, rows: list[Any]) -> list[Any]:
        """Arrow arrays of the table's data columns, in its order; what the writer does not have is null."""
        ...


class _JsonWriter:
    def __init__(self, frame: bytes, schema: registry.Schema, columns: pa.Schema, renames: Renames) -> None:
        self.frame = frame
        self.schema_id = schema.id
        self._columns = [column for column in columns if column.name != SYSTEM_COLUMN]
        self._fields = Schemas(schema.text, schema.references, renames).root(self._columns)

    def decode(self, value: bytes) -> Any:
        found = json_text.read(value[FRAME_BYTES:])
        if not isinstance(found, json_text.Members):
            raise Unreadable("malformed")
        return filled(self._fields, found)

    def project(self, rows: list[Any]) -> list[Any]:
        return [pa.array([row.get(column.name) for row in rows], column.type) for column in self._columns]


class _ProtobufWriter:
    def __init__(self, frame: bytes, schema: registry.Schema, columns: pa.Schema, renames: Renames) -> None:
        self.frame = frame
        self.schema_id = schema.id
        self._columns = [column for column in columns if column.name != SYSTEM_COLUMN]
        self._values = Values(schema, self._columns, renames)

    def decode(self, value: bytes) -> Any:
        return self._values.read(value[FRAME_BYTES:])

    def project(self, rows: list[Any]) -> list[Any]:
        return [pa.array([row.get(column.name) for row in rows], column.type) for column in self._columns]


class _AvroWriter:
    def __init__(self, frame: bytes, schema: registry.Schema, columns: pa.Schema, renames: Renames) -> None:
        top: Schema = json.loads(schema.text)
        if not isinstance(top, dict) or top.get("type") not in ("record", "error"):
            raise Unreadable("incompatible_schema")
        self.frame = frame
        self.schema_id = schema.id
        names: dict[str, Schema] = {}
        plain: dict[str, Schema] = {}
        numbers = count()
        for each in schema.references.values():
            resolved(json.loads(each), names, "")
            parse_schema(bytes_alone(json.loads(each), numbers), plain)
        data = [column for column in columns if column.name != SYSTEM_COLUMN]
        self._columns = field_converters(resolved(top, names, "")["fields"], data, renames)
        self._schema = parse_schema(bytes_alone(top, numbers), plain)

    def decode(self, value: bytes) -> Any:
        stream = BytesIO(value)
        stream.seek(FRAME_BYTES)
        try:
            row = schemaless_reader(
                stream,
                self._schema,
                None,
                return_record_name=True,
                return_record_name_override=True,
                handle_unicode_errors="replace",
            )
        except Exception:  # noqa: BLE001 whatever fastavro says, these bytes are no value of the schema
            raise Unreadable("malformed") from None
        if stream.tell() != len(value):
            raise Unreadable("trailing_bytes")
        return row

    def project(self, rows: list[Any]) -> list[Any]:
        arrays = []
        for column, source, convert in self._columns:
            if source is None:
                arrays.append(pa.nulls(len(rows), column.type))
            elif convert is None:
                arrays.append(pa.array([row[source] for row in rows], column.type))
            else:
                arrays.append(pa.array([convert(row[source]) for row in rows], column.type))
        return arrays


def kafka_struct(kind: Any, records: Records, topic: str, schema_id: int) -> Any:
    """The `_kafka` column of these records, with the fields that the table has."""
    size = len(records)
    headers = [
        None if each is None else [{"key": key, "value": value} for key, value in each]
        for each in records.headers
    ]
    made = {
        "topic": [topic] * size,
        "partition": records.partitions,
        "offset": records.offsets,
        "timestamp": [ms * 1000 for ms in records.timestamps_ms],
        "timestamp_type": records.timestamp_types,
        "key": records.keys,
        "headers": headers,
        "schema_id": [schema_id] * size,
    }
    return pa.StructArray.from_arrays(
        [pa.array(made[each.name], each.type) for each in kind], fields=list(kind)
    )
