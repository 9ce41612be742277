"""Protobuf schemas as verification sees them: compiled by protoc, or the descriptors that a client registered."""

from __future__ import annotations

import base64
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from grpc_tools import protoc

from calve import registry
from cli.verify.conversion import Unreadable

OWN = "calve_own.proto"
META = """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }"""
CONFLUENT = {
    "confluent/meta.proto": META,
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type;'
    " message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "confluent/type/variant.proto": 'syntax = "proto3"; package confluent.type;'
    " message Variant { bytes metadata = 1; bytes value = 2; }",
}
WORD = re.compile(
    r"""(?://[^\n]*|/\*.*?\*/|\s+)|(?P<word>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[\w.]+|.)""", re.DOTALL
)
OPEN, CLOSED = ("{", "[", "("), ("}", "]", ")")


@dataclass(slots=True)
class Compiled:
    """The messages of one registered schema; `checked`: those of proto2 in a language whose parser looks at every text, be it
    replaced by a later one.

    symbols: the names of an enum's numbers, by the full name of the field. The fields themselves are numbers here: what an enum
    does with a number that it does not name differs between versions of the language.
    """

    messages: list[Descriptor]
    checked: list[Descriptor] = field(default_factory=list)
    symbols: dict[str, dict[int, str]] = field(default_factory=dict)


@lru_cache(maxsize=256)
def compiled(schema: registry.Schema) -> Compiled:
    """A registered schema with its references.

    Raises:
        Unreadable: it is no Protobuf schema.
    """
    files = _files(schema)
    enums = {name: each for file in files for name, each in _enums(file)}
    symbols: dict[str, dict[int, str]] = {}
    for file in files:
        for message in file.message_type:
            _plain(message, f"{file.package}.{message.name}".lstrip("."), enums, symbols)
        del file.extension[:], file.service[:]
    try:
        messages = _messages(files)
    except (TypeError, KeyError, ValueError):
        raise Unreadable("incompatible_schema") from None
    lenient = [file for file in files if file.syntax in ("", "proto2")]
    for file in lenient:
        file.syntax = "proto3"
        del file.enum_type[:]
        for message in file.message_type:
            _as_proto3(message)
    with suppress(TypeError, KeyError, ValueError):
        return Compiled(messages, _messages(files) if lenient else [], symbols)
    return Compiled(messages, [], symbols)


def _messages(files: list[descriptor_pb2.FileDescriptorProto]) -> list[Descriptor]:
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return [*pool.FindFileByName(OWN).message_types_by_name.values()]


def _as_proto3(message: descriptor_pb2.DescriptorProto) -> None:
    """Of the same bytes on the wire, but for groups."""
    del message.enum_type[:], message.extension_range[:]
    for each in message.field:
        each.ClearField("default_value")
        each.ClearField("options")
        if each.label == each.LABEL_REQUIRED:
            each.label = each.LABEL_OPTIONAL
        if each.type == each.TYPE_GROUP:
            each.type = each.TYPE_MESSAGE
    for inner in message.nested_type:
        _as_proto3(inner)


def _files(schema: registry.Schema) -> list[descriptor_pb2.FileDescriptorProto]:
    """The file and all that it needs, each after those that it needs itself."""
    texts = {**schema.references, OWN: schema.text}
    binary = {name: each for name, text in texts.items() if (each := _binary(text)) is not None}
    imports = {name: [*each.dependency] for name, each in binary.items()}
    imports |= {name: _imports(text) for name, text in texts.items() if name not in binary}
    missing = {each for found in imports.values() for each in found if not _is_given(each, texts)}
    if missing:
        texts = {name: text if name in binary else _alone(text, missing) for name, text in texts.items()}
        for each in binary.values():
            _forget(each, missing)
    wanted = [dependency for each in binary.values() for dependency in each.dependency]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**CONFLUENT, **texts}.items():
            if name in binary:
                continue
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise Unreadable("incompatible_schema")
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        roots = [name for name in [*wanted, OWN] if name not in binary]
        found = {each.name: each for each in _protoc(Path(folder), roots)} if roots else {}
    for name, each in binary.items():
        each.name = name
    found |= binary
    needed = {name: [*each.dependency] for name, each in found.items()}
    try:
        order = [*TopologicalSorter(needed).static_order()]
    except CycleError:
        raise Unreadable("incompatible_schema") from None
    return [found[name] for name in order if name in found]


def _is_given(name: str, texts: Mapping[str, str]) -> bool:
    return name in texts or name in CONFLUENT or any(Path(each, name).is_file() for each in known_files())


def _forget(file: descriptor_pb2.FileDescriptorProto, missing: set[str]) -> None:
    """Imports that nobody has given; what needs a type of theirs is refused later."""
    public = [file.dependency[each] for each in file.public_dependency]
    kept = [each for each in file.dependency if each not in missing]
    file.dependency[:], file.weak_dependency[:] = kept, []
    file.public_dependency[:] = [kept.index(each) for each in public if each in kept]


def _words(text: str) -> list[re.Match[str]]:
    return [each for each in WORD.finditer(text) if each["word"] is not None]


def _imports(text: str) -> list[str]:
    words = [each[0] for each in _words(text)]
    behind = [words[n + 1 : n + 3] for n, each in enumerate(words) if each == "import"]
    return [each[1:-1] for found in behind for each in found if each[0] in "\"'"]


def _alone(text: str, missing: set[str]) -> str:
    """A file without imports that nobody has given, and without what may need them and changes no value.

    Those are services, extensions and options that are extensions: protoc would look for their types.
    """
    words, kept, done, place = _words(text), list[str](), 0, 0
    while place < len(words):
        last, found = _needless(words, place, missing), ""
        if words[place][0] == "[":
            last, found = _end(words, place + 1, "]"), _own_options(text, words, place)
        if last is not None:
            kept += [text[done : words[place].start()], found]
            done, place = words[last].end(), last
        place += 1
    return "".join((*kept, text[done:]))


def _needless(words: list[re.Match[str]], place: int, missing: set[str]) -> int | None:
    """Where a statement that begins here ends, if it is one of those; None: it is not."""
    if place and words[place - 1][0] not in (";", "{", "}"):
        return None
    match [each[0] for each in words[place : place + 3]]:
        case ["import", *names] if any(each[1:-1] in missing for each in names):
            return _end(words, place, ";")
        case ["option", "(", _]:
            return _end(words, place, ";")
        case ["service" | "extend", _, "{"]:
            return _end(words, place + 3, "}")
    return None


def _end(words: list[re.Match[str]], first: int, *stops: str) -> int:
    """The place of the first of these words that is in no bracket opened since."""
    depth = 0
    for place in range(first, len(words)):
        if not depth and words[place][0] in stops:
            return place
        depth += (words[place][0] in OPEN) - (words[place][0] in CLOSED)
    raise Unreadable("incompatible_schema")


def _own_options(text: str, words: list[re.Match[str]], place: int) -> str:
    """The options of a field that are its language's own, in their brackets."""
    own = []
    while words[place][0] != "]":
        first, place = place + 1, _end(words, place + 1, ",", "]")
        if words[first][0] != "(":
            own.append(text[words[first].start() : words[place].start()])
    return f"[{','.join(own)}]" if own else ""


def _protoc(folder: Path, roots: list[str]) -> list[descriptor_pb2.FileDescriptorProto]:
    result = folder / "calve_result"
    includes = [f"-I{each}" for each in (folder, *known_files())]
    with _silent():
        failed = protoc.main(
            ["protoc", *includes, "--include_imports", f"--descriptor_set_out={result}", *roots]
        )
    if failed:
        raise Unreadable("incompatible_schema")
    return list(descriptor_pb2.FileDescriptorSet.FromString(result.read_bytes()).file)


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing is written to this process's standard error: protoc, which is no Python, complains there with paths."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def known_files() -> list[Path]:
    """The folders of the files that everyone may import."""
    tools, types = find_spec("grpc_tools"), find_spec("google.type.date_pb2")
    assert tools is not None and tools.origin and types is not None and types.origin  # noqa: PT018, S101 dependencies
    return [Path(tools.origin).parent / "_proto", Path(types.origin).parents[2]]


def _binary(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """What a client registered in binary form; None: it is text."""
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(data)
    except (ValueError, DecodeError):
        return None


def _enums(file: descriptor_pb2.FileDescriptorProto) -> list[tuple[str, dict[int, str]]]:
    scope = f".{file.package}" if file.package else ""
    found = [(f"{scope}.{each.name}", _symbols(each)) for each in file.enum_type]
    waiting = [(f"{scope}.{each.name}", each) for each in file.message_type]
    while waiting:
        name, message = waiting.pop()
        found += [(f"{name}.{each.name}", _symbols(each)) for each in message.enum_type]
        waiting += [(f"{name}.{each.name}", each) for each in message.nested_type]
    return found


def _symbols(enum: descriptor_pb2.EnumDescriptorProto) -> dict[int, str]:
    return {each.number: each.name for each in reversed(enum.value)}


def _plain(
    message: descriptor_pb2.DescriptorProto,
    name: str,
    enums: Mapping[str, dict[int, str]],
    symbols: dict[str, dict[int, str]],
) -> None:
    for each in message.field:
        if each.type == each.TYPE_ENUM and each.type_name in enums:
            symbols[f"{name}.{each.name}"] = enums[each.type_name]
            each.type = each.TYPE_INT32
            each.ClearField("type_name")
            each.ClearField("default_value")
    del message.extension[:]
    for inner in message.nested_type:
        _plain(inner, f"{name}.{inner.name}", enums, symbols)
