"""Values decoded without the engine: by the readers of their formats, then projected by name on the table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from calve.names import SYSTEM_COLUMN
from calve.schema import wire
from calve.schema.evolution import SchemaProblem
from cli.verify.formats.fields import CONFLUENT, MISFIT, Framing, Renames, Spec, Unreadable, Writer
from cli.verify.formats.writers import PLAIN, ChangeWriter, whole_writer, writer_of
from cli.verify.topic import Records, moment

UNFIT = (Unreadable, SchemaProblem, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What is raised for a schema whose values are no rows of the table."""
Refused = list[tuple[int, str]]
"""The places of records that make no row, each with the reason."""


class Decoded(NamedTuple):
    """The rows of records, and which records make none."""

    batches: list[pa.RecordBatch]
    refused: Refused


class Decoding(Protocol):
    """Turns records into rows, or says why they are none."""

    def rows(self, records: Records, *, tombstones: bool = False) -> Decoded:
        """tombstones: rows with key and place alone, as records without a value say of them."""
        ...

    def doubtful(self, records: Records) -> set[int]:
        """The places of records that can be decoded, and may be malformed all the same: JSON with a member twice."""
        ...


@dataclass(slots=True)
class Values:
    """Decodes values into data columns, by their frames.

    `schema_of` looks up a registry id; `renames` are those that the subject's versions declare. `foreign` says whether a frame is
    that of another table's schema. `only`: values have no frame and are of this schema. `own`, `message`: as those of `Spec`.
    `changes`: values are events of a database's changes, ordered by these fields of their source. `whole`: a value is the one
    column.
    """

    columns: pa.Schema
    schema_of: Callable[[int], wire.Schema | None]
    renames: Renames = field(default_factory=dict)
    framing: Framing = CONFLUENT
    foreign: Callable[[bytes], bool] = lambda _: False
    only: wire.Schema | None = None
    own: str | None = None
    message: str | None = None
    changes: Sequence[str] | None = None
    whole: bool = False
    _writers: dict[bytes, Writer | str] = field(default_factory=dict)

    def decode(self, value: bytes | None) -> tuple[Writer, Any]:
        """The writer of a value, and what it makes of it.

        Raises:
            Unreadable: it is no row.
        """
        writer, plain = self._unframed(value)
        return writer, writer.decode(plain)

    def project(self, value: bytes | None) -> list[Any]:
        """The columns of a value.

        Raises:
            Unreadable: it is no row.
        """
        writer, row = self.decode(value)
        try:
            return writer.project([row])
        except MISFIT:
            raise Unreadable("malformed") from None

    def verdict(self, value: bytes | None) -> str | None:
        """Why a value is no row; None where it is one."""
        try:
            self.project(value)
        except Unreadable as verdict:
            return verdict.reason
        return None

    def is_doubtful(self, value: bytes | None) -> bool:
        """Whether a value can be decoded, and may be malformed all the same."""
        try:
            writer, plain = self._unframed(value)
            writer.decode(plain)
            return writer.is_ambiguous(plain)
        except Unreadable:
            return False

    def _unframed(self, value: bytes | None) -> tuple[Writer, Any]:
        if self.only is not None and (value is not None or self.only.type in PLAIN):
            return self._writer(b""), value
        if value is None:
            raise Unreadable("null_value")
        return self._writer(self.framing.header(value)), self.framing.inflated(value)

    def _writer(self, frame: bytes) -> Writer:
        found = self._writers.get(frame)
        if found is None:
            found = self._writers[frame] = self._look_up(frame)
        if isinstance(found, str):
            raise Unreadable(found)
        return found

    def _look_up(self, frame: bytes) -> Writer | str:
        schema = self.only or self.schema_of(self.framing.schema_id(frame))
        if schema is None:
            return "unknown_schema_id"
        if self.only is None and self.foreign(frame):
            return "incompatible_schema"
        spec = Spec(frame, schema, self.columns, self.renames, self.own, self.message)
        try:
            if self.changes is not None:
                return ChangeWriter(spec, self.changes)
            return whole_writer(spec) if self.whole else writer_of(spec)
        except UNFIT:
            return "incompatible_schema"


class Keys:
    """Reads keys into their column; null where a record has none, and where `values` is None: they were not read then."""

    def __init__(self, column: pa.Field, values: Values | None) -> None:
        self.column: str = column.name
        self._type = column.type
        self._values = values

    def read(self, key: bytes | None) -> Any:
        """The value of the column.

        Raises:
            Unreadable: `key_...`.
        """
        if key is None or self._values is None:
            return None
        try:
            [array] = self._values.project(key)
        except Unreadable as verdict:
            by_schema = verdict.reason in ("unknown_schema_id", "incompatible_schema")
            raise Unreadable(f"key_{verdict.reason}" if by_schema else "key_malformed") from None
        return array

    def array(self, found: list[Any]) -> Any:
        arrays = [pa.nulls(1, self._type) if each is None else each for each in found]
        return pa.concat_arrays(arrays) if arrays else pa.nulls(0, self._type)


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes the records of one topic into the columns of one table, `_kafka` and that of the keys included."""

    columns: pa.Schema
    topic: str
    values: Values
    key: Keys | None = None

    def rows(self, records: Records, *, tombstones: bool = False) -> Decoded:
        """As `Decoding.rows`."""
        decoded: dict[Writer | None, tuple[list[int], list[Any]]] = {}
        refused: Refused = []
        keys: dict[int, Any] = {}
        for place, value in enumerate(records.values):
            try:
                writer, row = (None, None) if tombstones else self.values.decode(value)
                keys[place] = self.key.read(records.keys[place]) if self.key else None
            except Unreadable as verdict:
                of_value = None if tombstones else self.values.verdict(value)
                refused.append((place, of_value or verdict.reason))
                continue
            places, found = decoded.setdefault(writer, ([], []))
            places.append(place)
            found.append(row)
        batches = []
        for writer, (places, found) in decoded.items():
            for kept, values in self._convertible(writer, places, found, refused):
                key = self.key.array([keys[place] for place in kept]) if self.key else None
                schema_id = writer.schema_id if writer else None
                batches.append(self._batch(records.select(kept), values, key, schema_id))
        return Decoded(batches, refused)

    def doubtful(self, records: Records) -> set[int]:
        """As `Decoding.doubtful`."""
        return {place for place, value in enumerate(records.values) if self.values.is_doubtful(value)}

    def _convertible(
        self, writer: Writer | None, places: list[int], found: list[Any], refused: Refused
    ) -> Iterable[tuple[list[int], list[Any]]]:
        """The columns of all rows at once or, where a value fits no column (an int of 64 bits), of each row that has none."""
        if writer is None:
            return [(places, [pa.nulls(len(places), each.type) for each in self.values.columns])]
        try:
            return [(places, writer.project(found))]
        except (*MISFIT, Unreadable):
            kept = []
            for place, row in zip(places, found, strict=True):
                try:
                    kept.append(([place], writer.project([row])))
                except (*MISFIT, Unreadable):
                    refused.append((place, "malformed"))
            return kept

    def _batch(self, records: Records, values: list[Any], key: Any, schema_id: int | None) -> pa.RecordBatch:
        kafka = kafka_struct(self.columns.field(SYSTEM_COLUMN).type, records, self.topic, schema_id)
        arrays, made = iter(values), {SYSTEM_COLUMN: kafka}
        if self.key is not None:
            made[self.key.column] = key
        columns = [made[name] if name in made else next(arrays) for name in self.columns.names]
        return pa.record_batch(columns, schema=self.columns)


def kafka_struct(kind: Any, records: Records, topic: str, schema_id: int | None) -> Any:
    """The `_kafka` column of these records, with the fields that the table has."""
    made = received(records, topic) | {"schema_id": [schema_id] * len(records)}
    arrays = [pa.array(made[each.name], each.type) for each in kind]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def received(records: Records, topic: str) -> dict[str, list[Any]]:
    """What Kafka says of records beside their values: in the form in which both tables hold it."""
    headers = [
        None if each is None else [{"key": key, "value": value} for key, value in each]
        for each in records.headers
    ]
    return {
        "topic": [topic] * len(records),
        "partition": records.partitions,
        "offset": records.offsets,
        "timestamp": list(map(moment, records.timestamps_ms)),
        "timestamp_type": records.timestamp_types,
        "key": records.keys,
        "headers": headers,
    }
