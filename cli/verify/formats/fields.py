"""What the formats have in common: why a value is no row, its header, and which of its fields fill which columns.

A field fills the column of its name, or of a name that a version of the schema says it had before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context
from typing import Any

import pyarrow as pa

from calve.schema import wire
from calve.schema.wire import Wire

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


class Unreadable(Exception):
    """Why a record is no row of the table: a word of `calve.schema.columns.REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Spec:
    """What the writer of a schema is made of; `columns`: those of the table that are data.

    `own`: the column that is no field: of bytes that are kept as they are, or of what a JSON schema does not declare.
    `message`: which one of a Protobuf file, by its name; None: the first. `changes`: the names of Debezium's types mean
    what they say.
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
    """How values name their schema: the header of one with a compressed payload is what it is without compression."""

    def start(self, value: bytes) -> bytes:
        """What stands where the header does."""
        if self.deflated and value.startswith(self.deflated):
            return self.magic + value[len(self.magic) : self.size]
        return value[: self.size]

    def header(self, value: bytes) -> bytes:
        """The header.

        Raises:
            Unreadable: there is none.
        """
        if len(value) < self.size:
            raise Unreadable("truncated")
        if not value.startswith(self.magics):
            raise Unreadable("bad_magic")
        return self.start(value)

    def inflated(self, value: bytes) -> bytes:
        """The value as it is without compression.

        Raises:
            Unreadable: its payload is no zlib stream, or too long.
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
    """One schema: reads its values as rows, and lays these out as the table's data columns, in its order."""

    def __init__(self, spec: Spec) -> None:
        self.frame = spec.frame
        self.schema_id = spec.schema.number or None
        self.columns = list(spec.columns)

    def decode(self, value: Any) -> Any:
        """The row of a value.

        Raises:
            Unreadable: it is none.
        """
        raise NotImplementedError

    def is_ambiguous(self, value: Any) -> bool:
        """Whether a value that can be decoded may be no value for all that."""
        return False

    def project(self, rows: list[Any]) -> list[Any]:
        """Arrow arrays of the columns; what a row does not have is null."""
        return [pa.array([row.get(each.name) for row in rows], each.type) for each in self.columns]


def columns_of(
    columns: Iterable[pa.Field],
    written: Mapping[str, Any],
    renames: Renames,
    converter: Callable[[Any, Any], Convert],
) -> Columns:
    """The columns that a writer fills; `written`: what its fields are, `converter`: of such a field and an Arrow type."""
    kinds = {each.name: each.type for each in columns}
    found = sources(kinds, written, renames)
    return {name: (source, converter(written[source], kinds[name])) for name, source in found.items()}


def filled(columns: Columns, values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a record or an object fills."""
    return {name: convert(values.get(source)) for name, (source, convert) in columns.items()}


def renames_of(versions: Iterable[Iterable[Fields]]) -> Renames:
    """Every rename that versions declare, each given by its records (`avro_records`, `json_objects`).

    Two names that one record has side by side are two columns from then on.
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
    """The columns that a writer fills, and the name by which it writes each."""
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
    """The fields of every record that an Avro schema defines."""
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
    """The properties of every object that a JSON Schema describes anywhere."""
    if isinstance(node, dict) and isinstance(named := node.get("properties"), dict):
        yield {name: each.get("x-aliases", ()) for name, each in named.items() if isinstance(each, dict)}
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from json_objects(each)
