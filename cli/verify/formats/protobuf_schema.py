"""Protobuf schemas: compiled by protoc, or the descriptors that a client registered."""

from __future__ import annotations

import base64
import tempfile
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from grpc_tools import protoc

from calve.errors import CalveError
from calve.schema.evolution import SchemaProblem
from calve.schema.protobuf.files import load
from calve.schema.protobuf.model import KNOWN_FILES
from calve.schema.wire import Schema
from cli.embedded.processes import silent
from cli.verify.formats.fields import Unreadable

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
