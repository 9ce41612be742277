"""What the formats share: reasons why a value is no row, frames, timestamps, and which fields fill which columns.

A field fills the column of its name, or of a name that an earlier version of the schema gave it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context
from typing import Any

import pyarrow as pa

from calve.schema import wire
from calve.schema.wire import Wire

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,6})0*)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_FARTHEST = timedelta(hours=18)
"""The greatest offset from UTC that a column's reader takes."""
_FAR = re.compile(r"(?P<before>-infinity|-\d{4,}-.*|0000-.*)|\+?infinity|\+\d{5,}-.*", re.ASCII)
_ISO = re.compile(r"[+-]?infinity|[+-]?\d+-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)", re.ASCII)
FIRST, LAST = -62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1
"""Microseconds of the first moment of the year 1, and of the last one of 9999."""

TIME = "io.debezium.time."
ZONED = f"{TIME}ZonedTimestamp"
MILLIS = f"{TIME}Timestamp"
MICROSECONDS = {MILLIS: 1000, f"{TIME}MicroTimestamp": 1}
"""Local times as numbers since 1970: how many microseconds their unit has."""
_AVRO = {
    ("int", f"{TIME}Date"): "date",
    ("long", MILLIS): MILLIS,
    ("long", f"{TIME}MicroTimestamp"): "local-timestamp-micros",
    ("string", ZONED): ZONED,
}
EXACT = Context(prec=100)
MISFIT = (pa.ArrowException, ArithmeticError)
"""What Arrow and the converters raise for a decoded value that is too large for its column."""

Convert = Callable[[Any], Any]
Columns = dict[str, tuple[str, Convert]]
"""By the name of a column: the field that fills it, and what its values become."""
Fields = Mapping[str, Iterable[str]]
"""The fields of one record: name -> the names that it says it had before."""
Renames = Mapping[str, frozenset[str]]
"""The name of a field -> all names that it had before."""


def bounded(micros: int) -> int:
    return min(max(micros, FIRST), LAST)


def database_timestamp_us(text: str) -> int | None:
    """As `moment`, also for the infinities and years that databases have."""
    far = _FAR.fullmatch(text) if _ISO.fullmatch(text) else None
    if far is None:
        return timestamp_us(text)
    return FIRST if far["before"] else LAST


def timestamp_us(text: str) -> int | None:
    """Microseconds since 1970; None if the text is not a timestamp of whole microseconds."""
    found = _MOMENT.fullmatch(text)
    try:
        if found:
            day, clock, fraction, sign, hours, minutes = found.groups()
            offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
            since = datetime.fromisoformat(f"{day}T{clock}+00:00") - EPOCH
            if int(minutes or 0) < 60 and offset <= _FARTHEST:
                shifted = since + (offset if sign == "-" else -offset)
                return shifted // timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0"))
    except ValueError:
        pass
    return None


def with_logical_types(node: Any) -> Any:
    """A resolved Avro schema with Debezium's named types as logical types."""
    match node:
        case list():
            return [with_logical_types(each) for each in node]
        case {"type": "record" | "error", "fields": fields}:
            return node | {"fields": [each | {"type": with_logical_types(each["type"])} for each in fields]}
        case {"type": "array", "items": inner}:
            return node | {"items": with_logical_types(inner)}
        case {"type": "map", "values": inner}:
            return node | {"values": with_logical_types(inner)}
    logical = _AVRO.get((node["type"], str(node.get("connect.name"))))
    return node | {"logicalType": logical} if logical else node


class Unreadable(Exception):
    """Why a record makes no row: a word of `calve.schema.columns.REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Spec:
    """The parts of a schema's writer; `columns`: the table's data columns.

    `own`: the column that is not a field: raw bytes, or what a JSON schema does not declare. `message`: the name of a message in
    a Protobuf file; None: the first. `changes`: Debezium's type names keep their meaning.
    """

    frame: bytes
    schema: wire.Schema
    columns: pa.Schema
    renames: Renames
    own: str | None = None
    message: str | None = None
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Framing(Wire):
    """How values name their schema. A compressed payload has the frame that it would have without compression."""

    def start(self, value: bytes) -> bytes:
        """The bytes at the frame's place."""
        if self.deflated and value.startswith(self.deflated):
            return self.magic + value[len(self.magic) : self.size]
        return value[: self.size]

    def header(self, value: bytes) -> bytes:
        """The frame.

        Raises:
            Unreadable: there is none.
        """
        if len(value) < self.size:
            raise Unreadable("truncated")
        if not value.startswith(self.magics):
            raise Unreadable("bad_magic")
        return self.start(value)

    def inflated(self, value: bytes) -> bytes:
        """The value without compression.

        Raises:
            Unreadable: its payload is not a zlib stream, or too long.
        """
        if not self.deflated or not value.startswith(self.deflated):
            return value
        found = self.plain(value)
        if found is None:
            raise Unreadable("malformed")
        return found


CONFLUENT = Framing(b"\x00", 5)
GLUE = Framing(b"\x03\x00", 18, b"\x03\x05")


class Writer:
    """One schema: reads its values as rows, and lays them out as the table's data columns."""

    def __init__(self, spec: Spec) -> None:
        self.frame = spec.frame
        self.schema_id = spec.schema.number or None
        self.columns = list(spec.columns)

    def decode(self, value: Any) -> Any:
        """The row of a value.

        Raises:
            Unreadable: it makes none.
        """
        raise NotImplementedError

    def is_ambiguous(self, value: Any) -> bool:
        """Whether a value decodes, but may be malformed."""
        return False

    def project(self, rows: list[Any]) -> list[Any]:
        """Arrow arrays of the columns; missing values are null."""
        return [pa.array([row.get(each.name) for row in rows], each.type) for each in self.columns]


def columns_of(
    columns: Iterable[pa.Field],
    written: Mapping[str, Any],
    renames: Renames,
    converter: Callable[[Any, Any], Convert],
) -> Columns:
    """The columns that a writer fills; `written`: its fields, `converter`: of a field and an Arrow type."""
    kinds = {each.name: each.type for each in columns}
    found = sources(kinds, written, renames)
    return {name: (source, converter(written[source], kinds[name])) for name, source in found.items()}


def filled(columns: Columns, values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a record or an object fills."""
    return {name: convert(values.get(source)) for name, (source, convert) in columns.items()}


def renames_of(versions: Iterable[Iterable[Fields]]) -> Renames:
    """All renames that versions declare, each given by its records (`avro_records`, `json_objects`).

    Two names side by side in one record are two columns from then on.
    """
    before: dict[str, set[str]] = {}
    together: set[tuple[str, str]] = set()
    for version in versions:
        known = list(version)
        for fields in known:
            for name, aliases in fields.items():
                earlier = {a for a in aliases if a not in fields and (name, a) not in together}
                before.setdefault(name, set()).update(earlier)
        together |= {(one, other) for fields in known for one in fields for other in fields}
    return {name: frozenset(_reached(name, before) - {name}) for name in before if before[name]}


def sources(columns: Iterable[str], written: Iterable[str], renames: Renames) -> dict[str, str]:
    """The columns that a writer fills, with the name of each in its schema."""
    columns, left = list(columns), set(written)
    found = {}
    for name in columns:
        if name not in left and (earlier := sorted(renames.get(name, frozenset()) & set(written))):
            found[name] = earlier[0]
    left -= set(found.values())
    return found | {name: name for name in columns if name in left}


def _reached(name: str, before: Mapping[str, set[str]]) -> set[str]:
    found, waiting = set(), [name]
    while waiting:
        for each in before.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def avro_records(node: Any) -> Iterator[Fields]:
    """The fields of every record in an Avro schema."""
    if isinstance(node, list):
        for each in node:
            yield from avro_records(each)
    elif isinstance(node, dict):
        if "fields" in node:
            yield {each["name"]: each.get("aliases", ()) for each in node["fields"]}
        inside = [each["type"] for each in node.get("fields", ())]
        for each in [*inside, *(node[key] for key in ("type", "items", "values") if key in node)]:
            yield from avro_records(each)


def json_objects(node: Any) -> Iterator[Fields]:
    """The properties of every object in a JSON Schema."""
    if isinstance(node, dict) and isinstance(named := node.get("properties"), dict):
        yield {name: each.get("x-aliases", ()) for name, each in named.items() if isinstance(each, dict)}
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from json_objects(each)
