"""Protobuf values, parsed by Google's library. Own rules, not the job's code, lay them out as columns.

Schemas are compiled by protoc, or are the descriptors that a client registered.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Context, Decimal
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_tools import protoc

from calve.errors import CalveError
from calve.schema.columns import Json, decimal_digits
from calve.schema.evolution import SchemaProblem
from calve.schema.protobuf.files import load
from calve.schema.protobuf.model import KNOWN_FILES
from calve.schema.wire import Schema
from calve.schema.writers import ProtobufWriter as Plan
from cli.embedded.processes import silent
from cli.verify.formats.fields import EPOCH, EXACT, Convert, Unreadable, Writer, bounded, written_in

OWN = "calve_own.proto"
META = """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }"""
CONFLUENT = {"confluent/meta.proto": META} | {
    name: text for name, text in KNOWN_FILES.items() if name.startswith("confluent/")
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """The messages of one registered schema.

    symbols: enum names by number, by the field's full name. The fields themselves are numbers here: languages treat unknown enum
    numbers differently. entries: the full names of messages that are map entries. A map is a list of them here: the library
    forgets replaced entries, and drops an entry with an unknown field.
    """

    messages: list[Descriptor]
    symbols: dict[str, dict[int, str]] = field(default_factory=dict)
    entries: set[str] = field(default_factory=set)


@lru_cache(maxsize=256)
def compiled(schema: Schema) -> Compiled:
    """A registered schema with its references; proto2 is compiled as an edition whose parser checks every text.

    Raises:
        Unreadable: it is not a Protobuf schema. CalveError: only protoc refuses it.
    """
    files = _files(schema)
    made = Compiled([])
    try:
        enums = _pool(files)
        for file in files:
            old = file.syntax in ("", "proto2")
            for message in file.message_type:
                _plain(message, f"{file.package}.{message.name}".lstrip("."), enums, made, old=old)
            del file.extension[:]
            if old:
                file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
                file.options.features.enum_type = descriptor_pb2.FeatureSet.CLOSED
        own = _pool(files).FindFileByName(files[-1].name)
    except (TypeError, KeyError, ValueError):
        raise Unreadable("incompatible_schema") from None
    return replace(made, messages=[own.message_types_by_name[each.name] for each in files[-1].message_type])


def _pool(files: list[descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool


def _files(schema: Schema) -> list[descriptor_pb2.FileDescriptorProto]:
    """The file and its imports, each after its own imports."""
    binary = descriptor_pb2.FileDescriptorSet()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**CONFLUENT, **schema.references, OWN: schema.text}.items():
            if (found := _binary(text)) is not None:
                found.name = name
                binary.file.append(found)
                continue
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise Unreadable("incompatible_schema")
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        given, result = Path(folder, "calve_given"), Path(folder, "calve_result")
        given.write_bytes(binary.SerializeToString())
        command = ["protoc", *(f"-I{each}" for each in (folder, *known_files())), "--include_imports"]
        with silent():  # protoc complains with paths
            failed = protoc.main(
                [*command, f"--descriptor_set_in={given}", f"--descriptor_set_out={result}", OWN]
            )
        if failed:
            raise _refused(schema)
        return list(descriptor_pb2.FileDescriptorSet.FromString(result.read_bytes()).file)


def _refused(schema: Schema) -> CalveError | Unreadable:
    """Unlike protoc, the job needs only the imports of its fields' types: errors of protoc alone do not count."""
    try:
        load(schema)
    except SchemaProblem:
        return Unreadable("incompatible_schema")
    what = f"protoc cannot compile the Protobuf schema {schema.id}, though the job can read it"
    return CalveError(
        f"verify could not check its records: {what}", fix="register every file that it imports"
    )


def known_files() -> list[Path]:
    """The folders of the well-known imports."""
    tools, types = find_spec("grpc_tools"), find_spec("google.type.date_pb2")
    assert tools is not None and tools.origin and types is not None and types.origin  # noqa: PT018, S101 dependencies
    return [Path(tools.origin).parent / "_proto", Path(types.origin).parents[2]]


def _binary(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """The binary descriptor that a client registered; None: it is text."""
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(data)
    except (ValueError, DecodeError):
        return None


def _plain(
    message: descriptor_pb2.DescriptorProto,
    name: str,
    enums: descriptor_pool.DescriptorPool,
    made: Compiled,
    *,
    old: bool,
) -> None:
    """Enums become numbers, and maps lists of entries; fields of proto2 (`old`) those of an edition with the same bytes."""
    for each in message.field:
        if each.type == each.TYPE_ENUM:
            enum = enums.FindEnumTypeByName(each.type_name.lstrip("."))
            made.symbols[f"{name}.{each.name}"] = {
                value.number: value.name for value in reversed(enum.values)
            }
            each.type = each.TYPE_INT32
            each.ClearField("type_name")
            each.ClearField("default_value")
        if old:
            each.ClearField("options")
            if each.label == each.LABEL_REQUIRED:
                each.label = each.LABEL_OPTIONAL
                each.options.features.field_presence = descriptor_pb2.FeatureSet.LEGACY_REQUIRED
            if each.type == each.TYPE_GROUP:
                each.type = each.TYPE_MESSAGE
                each.options.features.message_encoding = descriptor_pb2.FeatureSet.DELIMITED
    del message.extension[:]
    if message.options.map_entry:
        made.entries.add(name)
        message.options.map_entry = False
    for inner in message.nested_type:
        _plain(inner, f"{name}.{inner.name}", enums, made, old=old)


GROUP = 3
UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


class ProtobufWriter(Writer):
    """For values of the plan's message. `read`: its columns; `whole`: the message is this one column."""

    def __init__(
        self, frame: bytes, columns: pa.Schema, schema: Compiled, read: Json, plan: Plan, whole: str | None
    ) -> None:
        super().__init__(frame, columns)
        self._schema, self._plan, self._whole = schema, plan, whole
        top = self._schema.messages[0].file.pool.FindMessageTypeByName(plan.message)
        self._class = GetMessageClass(top)
        self._row = _Layout(self._schema).struct(top, read["fields"][0]["type"] if whole else read)

    def decode(self, value: bytes) -> Any:
        if not self.frame:
            payload = value
        elif value.startswith(self._plan.prefix):
            payload = value[len(self._plan.prefix) :]
        elif value.startswith(tuple(self._plan.others)):
            raise Unreadable("incompatible_schema")
        else:
            raise ValueError
        message = self._class()
        try:
            message.ParseFromString(payload)
        except DecodeError:
            raise ValueError from None
        if _is_strange(message, self._schema.entries):
            raise ValueError
        row = self._row(message)
        return {self._whole: row} if self._whole else row


class _Layout:
    """Functions from messages of a schema, and from their fields, to values of columns."""

    def __init__(self, schema: Compiled) -> None:
        self._symbols, self._entries = schema.symbols, schema.entries

    def struct(self, message: Descriptor, columns: Json) -> Convert:
        parts = {
            name: self.oneof(message.oneofs_by_name[source], kind)
            if source in message.oneofs_by_name
            else self.field(message.fields_by_name[source], kind)
            for name, source, kind in written_in(columns)
        }
        return lambda found: {name: part(found) for name, part in parts.items()}

    def oneof(self, oneof: OneofDescriptor, column: Json) -> Convert:
        fields = {each.name: each for each in oneof.fields}
        parts = {
            source: (name, self.value(fields[source], kind)) for name, source, kind in written_in(column)
        }

        def convert(found: Any) -> dict[str, Any] | None:
            which = found.WhichOneof(oneof.name)
            if which is None:
                return None
            name, part = parts[which]
            return {name: part(getattr(found, which))}

        return convert

    def field(self, each: FieldDescriptor, column: Json) -> Convert:
        name, message = each.name, each.message_type
        if message is not None and message.full_name in self._entries:
            entry = message.fields_by_name
            key = self.value(entry["key"], column["key"])
            item = self.value(entry["value"], column["value"])
            return lambda found: [
                (key(known), item(one.value)) for known, one in _last(getattr(found, name)).items()
            ]
        if each.is_repeated:
            element = self.value(each, column["element"])
            return lambda found: [element(one) for one in getattr(found, name)]
        alone = self.value(each, column)
        if each.has_presence:
            return lambda found: alone(getattr(found, name)) if found.HasField(name) else None
        return lambda found: alone(getattr(found, name))

    def value(self, each: FieldDescriptor, column: Json) -> Convert:
        if each.message_type is not None:
            return self.message(each.message_type, column)
        symbols = self._symbols.get(each.full_name)
        if symbols is not None:
            return lambda number: symbols.get(number, str(number))
        if each.type in UNSIGNED:
            return Decimal
        if each.type == each.TYPE_STRING:
            return _text
        return lambda value: value

    def message(self, message: Descriptor, column: Json) -> Convert:
        if isinstance(column, dict):
            return self.struct(message, column)
        match message.full_name:
            case "google.protobuf.Timestamp":
                return _moment
            case "google.type.Date":
                return _day
            case "confluent.type.Decimal":
                return partial(_decimal, digits=decimal_digits(column) or (0, 0))
        inner = self.value(message.fields[0], column)
        return lambda wrapper: inner(wrapper.value)


def _last(entries: Iterable[Any]) -> dict[Any, Any]:
    """The last entry of each key, by key."""
    return {each.key: each for each in entries}


def _is_strange(message: Message, entries: set[str]) -> bool:
    """Whether the library set a known field aside as invalid, or a required value is missing; map entries that a later one
    replaces do not count.
    """
    kind = message.DESCRIPTOR
    for unknown in UnknownFieldSet(message):  # type: ignore[attr-defined]
        if unknown.field_number in kind.fields_by_number or unknown.wire_type == GROUP:
            return True
    for each in _judged(kind):
        value = getattr(message, each.name)
        if each.is_repeated:
            is_map = each.message_type is not None and each.message_type.full_name in entries
            if any(_is_strange(one, entries) for one in (_last(value).values() if is_map else value)):
                return True
        elif not message.HasField(each.name) and kind.full_name not in entries:
            if each.is_required:
                return True
        elif each.message_type is not None and _is_strange(value, entries):
            return True
    return False


@lru_cache(maxsize=1024)
def _judged(kind: Descriptor) -> list[FieldDescriptor]:
    """The fields that hold messages, or are required."""
    return [each for each in kind.fields if each.message_type is not None or each.is_required]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 its bytes are no UTF-8
    return value


def _moment(value: Any) -> int:
    micros = int(value.seconds * 10**6 + value.nanos // 1000)
    if not 0 <= value.nanos < 10**9 or value.nanos % 1000 or bounded(micros) != micros:
        raise ValueError
    return micros


def _day(value: Any) -> int:
    return (date(value.year, value.month, value.day) - EPOCH.date()).days


def _decimal(value: Any, digits: tuple[int, int]) -> Decimal:
    """digits: precision and scale."""
    precision, places = digits
    unscaled = int.from_bytes(value.value, "big", signed=True)
    scale = value.scale if unscaled else 0  # zero is zero wherever its point is
    if len(value.value) > 16 or not -1000 <= scale <= 1000:
        raise ValueError
    exact = Decimal(unscaled).scaleb(-scale, EXACT)
    fitted = exact.quantize(Decimal(1).scaleb(-places), context=Context(prec=2000))
    if fitted != exact or len(fitted.as_tuple().digits) > precision:
        raise ValueError
    return fitted
