"""Which values of a table's records are masked: all but those that calve.yaml or a schema name, and those that `--keep` names."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from calve.config.job import Table
from calve.config.steps import Route
from calve.decoding.formats import message_prefixes
from calve.decoding.record_schemas import Part, RecordSchemas
from calve.schema import avro, cloud_events
from calve.schema.change_events import UNAVAILABLE
from calve.schema.evolution import SchemaProblem
from calve.schema.inference import INFERRED
from calve.schema.protobuf.files import load, message_of, messages
from calve.schema.wire import GUID_MAGIC, HEADERS, Schema, inflate
from cli.project.capture.binary import avro as masked_avro
from cli.project.capture.binary import protobuf as masked_protobuf
from cli.project.capture.pseudonyms import Path, Pseudonyms

Headers = Sequence[tuple[str, bytes | None]]

_LITERAL = re.compile(r"'((?:[^']|'')*)'")
_OF_CHANGES = ("op", "source", "ts_ms", "ts_us", "ts_ns", "transaction", "schema")
"""Fields of a database's change events that hold no row."""
_NAMES = (*cloud_events.ATTRIBUTES, cloud_events.DATA, cloud_events.BASE64, "payload", "_id")
"""Members of JSON around a row, and the key of MongoDB's documents: no schema declares them."""
_OPERATIONS = ("c", "r", "u", "d", "t", "m", UNAVAILABLE)
_ENVELOPE = ("specversion", "type", "source", "datacontenttype", "dataschema")
"""Attributes of CloudEvents that say what an event is, not what it is about."""
_KEPT_HEADERS = {
    *HEADERS.values(),
    cloud_events.CONTENT_TYPE,
    *(cloud_events.PREFIX + each for each in _ENVELOPE),
}


@dataclass(slots=True)
class Masking:
    """Masks the records of one table. Equal values become equal ones in all of them.

    kept: paths of fields. used: those of them that a value has had.
    """

    table: Table
    schemas: RecordSchemas
    kept: Sequence[Path] = ()
    secret: bytes = field(default_factory=lambda: os.urandom(32))
    used: set[Path] = field(default_factory=set)
    _known: dict[tuple[Schema | None, bool], Pseudonyms] = field(default_factory=dict)
    _schemas: dict[bool, list[Schema]] = field(init=False)
    """Of values and keys, the newest version last. Asked for once: a registry is asked again for each list of versions."""

    def __post_init__(self) -> None:
        parts = [each for each in (self.schemas.value, self.schemas.key) if each is not None]
        self._schemas = {each.is_key: [*each.schemas.foreign, *each.schemas.versions()] for each in parts}

    def key(self, data: bytes | None, headers: Headers) -> bytes | None:
        return None if data is None else self._masked(data, self.schemas.key, headers)

    def value(self, data: bytes | None, headers: Headers) -> bytes | None:
        return None if data is None else self._masked(data, self.schemas.value, headers)

    def headers(self, headers: Headers) -> list[tuple[str, bytes | None]]:
        return [
            (name, data if data is None or name.lower() in _KEPT_HEADERS else self._unknown(data))
            for name, data in headers
        ]

    def _masked(self, data: bytes, part: Part | None, headers: Headers) -> bytes:
        if part is None:
            return self._unknown(data)
        frame, schema = self._framed(data, part, headers)
        hide, payload = self._hiding(schema, part), data[len(frame) :]
        if hide.keeps(()):
            return data
        if not part.wire.deflated or not frame.startswith(part.wire.deflated):
            return frame + _payload(payload, schema, part, hide)
        inflated = inflate(payload)
        if inflated is None:
            return frame + hide.raw(payload)
        return frame + zlib.compress(_payload(inflated, schema, part, hide))

    def _framed(self, data: bytes, part: Part, headers: Headers) -> tuple[bytes, Schema | None]:
        """The bytes before a payload, and the schema that wrote it; None: unknown, or there is no frame."""
        known = self._schemas[part.is_key]
        if not part.wire.size:
            return b"", known[-1]
        frame, number = _frame(data, part, headers)
        return frame, next((each for each in known if number in each.ids), None)

    def _unknown(self, data: bytes) -> bytes:
        """Bytes without a schema."""
        hide = self._hiding(None, None)
        return data if hide.keeps(()) else hide.raw(data)

    def _hiding(self, schema: Schema | None, part: Part | None) -> Pseudonyms:
        """The pseudonyms for values of a schema."""
        place = schema, part is not None and part.is_key
        if place not in self._known:
            self._known[place] = self._made(schema, part)
        return self._known[place]

    def _made(self, schema: Schema | None, part: Part | None) -> Pseudonyms:
        words, names = {*_configured(self.table)}, {*_NAMES}
        kept = list(self.kept)
        if part is not None and part.top.changes:
            words |= {*_OPERATIONS}
            kept += [path for name in _OF_CHANGES for path in ((name,), ("payload", name))]
        if part is not None and part.top.event is not None:
            kept += [(name,) for name in _ENVELOPE]
        written = [schema, part.top.document if part else None]
        for each in (each for each in written if each is not None):
            for text in (each.text, *each.references.values()):
                words |= {*_strings(text)}
        is_open = schema is not None and schema.type == INFERRED
        return Pseudonyms(kept, words, None if is_open else names, self.secret, self.used)


def named(data: bytes | None, part: Part | None, headers: Headers) -> int | None:
    """The number of the schema that a value or key names; None: it names none."""
    return None if data is None or part is None else _frame(data, part, headers)[1]


def _frame(data: bytes, part: Part, headers: Headers) -> tuple[bytes, int | None]:
    """The bytes before a payload, and the number of the schema that they or a header name."""
    wire = part.wire
    number = _of_header(part, headers)
    if number is not None or len(data) < wire.size or not wire.size or not data.startswith(wire.magics):
        return b"", number
    return data[: wire.size], wire.schema_id(data[: wire.size])


def _of_header(part: Part, headers: Headers) -> int | None:
    if part.wire.by_guid is None:
        return None
    name = HEADERS["key" if part.is_key else "value"]
    held = next((data for each, data in reversed(headers) if each == name), None) or b""
    if held.startswith(GUID_MAGIC):
        held = part.wire.by_guid + held[len(GUID_MAGIC) :]
        return part.wire.schema_id(held) if len(held) == part.wire.guid_frame_size else None
    return (
        part.wire.schema_id(held)
        if len(held) == part.wire.size and held.startswith(part.wire.magic)
        else None
    )


def _payload(data: bytes, schema: Schema | None, part: Part, hide: Pseudonyms) -> bytes:
    if schema is None or schema.type == "BYTES":
        return hide.raw(data)
    match schema.type:
        case "AVRO":
            return _of_avro(data, schema, hide)
        case "PROTOBUF":
            return _of_protobuf(data, schema, part, hide)
        case "STRING":
            return hide.string(data)
    text = data.decode("utf-8", "surrogateescape")
    return hide.json(text).encode("utf-8", "surrogateescape")


def _of_avro(data: bytes, schema: Schema, hide: Pseudonyms) -> bytes:
    try:
        return masked_avro(data, avro.expand(schema.text, schema.references), hide)
    except (SchemaProblem, ValueError):
        return hide.raw(data)


def _of_protobuf(data: bytes, schema: Schema, part: Part, hide: Pseudonyms) -> bytes:
    """The message's place in its file stays."""
    try:
        file = load(schema)
        only = None if part.wire.size else message_of(file, part.top.message)[1]
    except SchemaProblem:
        return hide.raw(data)
    if only is not None:
        return masked_protobuf(data, only, hide)
    prefixes, every = message_prefixes(file, part.wire), dict(messages(file.messages))
    found = [path for path, prefix in prefixes.items() if data.startswith(prefix)]
    if not found:
        return hide.raw(data)
    path = max(found, key=lambda each: len(prefixes[each]))
    prefix = prefixes[path]
    return prefix + masked_protobuf(data[len(prefix) :], every[path], hide)


def _configured(table: Table) -> Iterator[str]:
    """The texts of a table's settings, with those in its SQL, and the numbers by which it routes records."""
    for text in _texts(asdict(table)):
        yield text
        for found in _LITERAL.findall(text):
            yield found.replace("''", "'")
            if found.startswith("$"):  # a path into JSON
                yield from re.findall(r"\w+", found)
    for step in table.steps:
        if isinstance(step, Route):
            yield from map(str, (*step.values, *step.named))


def _strings(text: str) -> Iterator[str]:
    """Names and texts of a schema in JSON; of another one none."""
    try:
        yield from _texts(json.loads(text))
    except ValueError:
        return


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for name, each in value.items():
                yield str(name)
                yield from _texts(each)
        case list() | tuple():
            for each in value:
                yield from _texts(each)
