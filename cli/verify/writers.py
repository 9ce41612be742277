"""Writers of values: by the readers of their formats, then projected by name on the table's columns."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from calve import registry
from cli.verify import connect_schema, json_text
from cli.verify.avro_values import Bytes, reader
from cli.verify.conversion import MISFIT, Schema, Unreadable, field_converters, resolved
from cli.verify.debezium import with_logical_types
from cli.verify.framing import CONFLUENT, GLUE
from cli.verify.json_schema import Schemas, filled
from cli.verify.protobuf_values import Values
from cli.verify.renames import Renames

PLAIN = ("STRING", "BYTES")
VALUE = "value"


class Writer(Protocol):
    """One schema: reads its values and lays them out as columns."""

    frame: bytes
    schema_id: int | None

    def decode(self, value: Any) -> Any: ...

    def is_ambiguous(self, value: Any) -> bool:
        """Whether a value that can be decoded may be no value for all that."""
        return False

    def project(self, rows: list[Any]) -> list[Any]:
        """Arrow arrays of the table's data columns, in its order; what the writer does not have is null."""
        ...


def writer_of(
    frame: bytes,
    schema: registry.Schema,
    columns: pa.Schema,
    renames: Renames,
    own: str | None = None,
    message: str | None = None,
    *,
    changes: bool = False,
) -> Writer:
    """The writer of a schema whose fields are the columns.

    `own`: the column that is no field: of bytes that are kept as they are, or of what a JSON schema does not declare.
    `message`: which one of a Protobuf file, by its name; None: the first. `changes`: the names of Debezium's types mean
    what they say.
    """
    if message is not None and schema.type != "PROTOBUF":
        raise Unreadable("incompatible_schema")
    if schema.type in PLAIN:
        return _PlainWriter(frame, columns, own or VALUE, text=schema.type == "STRING")
    if schema.type == "JSON":
        return _JsonWriter(frame, schema, columns, renames, own, changes=changes)
    if schema.type == "PROTOBUF":
        return _ProtobufWriter(frame, schema, columns, renames, message)
    return _AvroWriter(frame, schema, columns, renames, changes=changes)


def whole_writer(
    frame: bytes, schema: registry.Schema, columns: pa.Schema, renames: Renames, message: str | None = None
) -> Writer:
    """The writer of a schema that is the one column, whatever it describes; `message`: as for `writer_of`."""
    [column] = columns
    if schema.type in PLAIN:
        return writer_of(frame, schema, columns, renames, column.name)
    if schema.type == "JSON":
        return _WholeJsonWriter(frame, schema, column, renames)
    if schema.type == "AVRO":
        fields = [{"name": column.name, "type": json.loads(schema.text)}]
        text = json.dumps({"type": "record", "name": "whole", "fields": fields})
        return _AvroWriter(frame, replace(schema, text=text), columns, renames)
    fields = pa.schema(list(column.type))
    return _Nested(writer_of(frame, schema, fields, renames, message=message), column)


class _PlainWriter(Writer):
    def __init__(self, frame: bytes, columns: pa.Schema, name: str, *, text: bool) -> None:
        self.frame = frame
        self.schema_id: int | None = None
        self._columns = list(columns)
        self._name = name
        self._text = text

    def decode(self, value: bytes | None) -> Any:
        try:
            return value.decode() if value is not None and self._text else value
        except UnicodeDecodeError:
            raise Unreadable("malformed") from None

    def project(self, rows: list[Any]) -> list[Any]:
        return [
            pa.array(rows, each.type) if each.name == self._name else pa.nulls(len(rows), each.type)
            for each in self._columns
        ]


class _Nested(Writer):
    """A writer whose columns are the fields of one."""

    def __init__(self, inner: Writer, column: pa.Field) -> None:
        self.frame = inner.frame
        self.schema_id = inner.schema_id
        self._inner = inner
        self._column = column

    def decode(self, value: bytes) -> Any:
        return self._inner.decode(value)

    def is_ambiguous(self, value: bytes) -> bool:
        return self._inner.is_ambiguous(value)

    def project(self, rows: list[Any]) -> list[Any]:
        return [pa.StructArray.from_arrays(self._inner.project(rows), fields=list(self._column.type))]


class _AnyJsonWriter(Writer):
    def is_ambiguous(self, value: Any) -> bool:
        return json_text.repeats(json_text.read(value[len(self.frame) :]))


class _WholeJsonWriter(_AnyJsonWriter):
    def __init__(self, frame: bytes, schema: registry.Schema, column: pa.Field, renames: Renames) -> None:
        self.frame = frame
        self.schema_id = schema.number or None
        self._column = column
        described = connect_schema.described(schema)
        self._embedded = described is not None
        self._convert = Schemas(described or schema.text, schema.references, renames).whole(column.type)

    def decode(self, value: bytes) -> Any:
        found = json_text.read(value[len(self.frame) :])
        if self._embedded:
            found = connect_schema.payload(found)
        if pa.types.is_struct(self._column.type) != isinstance(found, json_text.Members):
            raise Unreadable("malformed")
        return self._convert(found)

    def project(self, rows: list[Any]) -> list[Any]:
        return [pa.array(rows, self._column.type)]


class _JsonWriter(_AnyJsonWriter):
    def __init__(
        self,
        frame: bytes,
        schema: registry.Schema,
        columns: pa.Schema,
        renames: Renames,
        rest: str | None,
        *,
        changes: bool,
    ) -> None:
        described = connect_schema.described(schema)
        schemas = Schemas(described or schema.text, schema.references, renames, changes=changes)
        self._embedded = described is not None
        self.frame = frame
        self.schema_id = schema.number or None
        self._columns = list(columns)
        self._fields = schemas.root(columns)
        self._declared = schemas.declared()
        self._rest = rest

    def decode(self, value: bytes) -> Any:
        found = json_text.read(value[len(self.frame) :])
        if self._embedded:
            found = connect_schema.payload(found)
        if not isinstance(found, json_text.Members):
            raise Unreadable("malformed")
        row = filled(self._fields, found)
        return row | {self._rest: self._undeclared(found)} if self._rest else row

    def _undeclared(self, found: json_text.Members) -> str | None:
        """The JSON text of what the schema does not declare. No object may have a member twice, wherever it stands."""
        for each in found.values():
            json_text.written(each)
        rest = json_text.Members({name: each for name, each in found.items() if name not in self._declared})
        rest.repeated = bool(found.twice - self._declared)
        return json_text.written(rest) if rest else None

    def project(self, rows: list[Any]) -> list[Any]:
        return [pa.array([row.get(column.name) for row in rows], column.type) for column in self._columns]


class _ProtobufWriter(Writer):
    def __init__(
        self,
        frame: bytes,
        schema: registry.Schema,
        columns: pa.Schema,
        renames: Renames,
        message: str | None,
    ) -> None:
        self.frame = frame
        self.schema_id = schema.number or None
        self._columns = list(columns)
        framing = GLUE if len(frame) == GLUE.size else CONFLUENT
        self._values = Values(schema, self._columns, renames, message, framing)

    def decode(self, value: bytes) -> Any:
        if not self.frame:
            return self._values.read_bare(value)
        return self._values.read(value[len(self.frame) :])

    def project(self, rows: list[Any]) -> list[Any]:
        return [pa.array([row.get(column.name) for row in rows], column.type) for column in self._columns]


class _AvroWriter(Writer):
    def __init__(
        self,
        frame: bytes,
        schema: registry.Schema,
        columns: pa.Schema,
        renames: Renames,
        *,
        changes: bool = False,
    ) -> None:
        top: Schema = json.loads(schema.text)
        if not isinstance(top, dict) or top.get("type") not in ("record", "error"):
            raise Unreadable("incompatible_schema")
        self.frame = frame
        self.schema_id = schema.number or None
        names: dict[str, Schema] = {}
        for each in schema.references.values():
            resolved(json.loads(each), names, "")
        found = resolved(top, names, "")
        fields = (with_logical_types(found) if changes else found)["fields"]
        self._columns = field_converters(fields, columns, renames)
        self._changes = changes
        self._read = reader(found)

    def decode(self, value: bytes) -> Any:
        found = Bytes(value, len(self.frame))
        try:
            row = self._read(found)
        except (ValueError, IndexError):
            raise Unreadable("malformed") from None
        if found.at != len(value):
            raise Unreadable("malformed" if self._misfits(row) else "trailing_bytes")
        return row

    def _misfits(self, row: Any) -> bool:
        """Whether the reader of Avro already refuses a value. A database's own types are converted later."""
        if self._changes:
            return False
        try:
            self.project([row])
        except (*MISFIT, Unreadable):
            return True
        return False

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
