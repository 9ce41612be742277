"""Values decoded without the engine: by the readers of their formats, then projected by name on the table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from calve import registry
from calve.evolution import SchemaProblem
from calve.names import SYSTEM_COLUMN
from cli.verify.changes import ChangeWriter
from cli.verify.conversion import MISFIT, Unreadable
from cli.verify.framing import CONFLUENT, Framing
from cli.verify.renames import Renames
from cli.verify.topic import Records, moment
from cli.verify.writers import PLAIN, Writer, whole_writer, writer_of


class Decoding(Protocol):
    """Turns records into rows, or says why they are none."""

    def rows(self, records: Records) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]: ...

    def tombstones(self, records: Records) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]: ...

    def judge(self, records: Records) -> list[str | None]: ...


class Decoder:
    """Decodes the records of one topic into the columns of one table.

    `columns` is the table's Arrow schema, `_kafka` included; `schema_of` looks up a registry id; `renames` are those that the
    subject's versions declare. `only`: all values are bare and of this schema. `own`: the column that is no field, as
    `cli.verify.writers.writer_of` has it, and `message`. `key`: how keys become a column. `foreign` says whether a frame is
    that of another table's schema. `changes`: values are events of a database's changes, ordered by these fields of their source.
    """

    def __init__(
        self,
        columns: pa.Schema,
        topic: str,
        schema_of: Callable[[int], registry.Schema | None],
        renames: Renames = MappingProxyType({}),
        *,
        framing: Framing = CONFLUENT,
        foreign: Callable[[bytes], bool] = lambda _: False,
        only: registry.Schema | None = None,
        own: str | None = None,
        message: str | None = None,
        key: Keys | None = None,
        changes: Sequence[str] | None = None,
    ) -> None:
        self.columns = columns
        self._key = key
        self._topic = topic
        others = {SYSTEM_COLUMN, key.column if key else SYSTEM_COLUMN}
        self.values = Values(
            pa.schema([each for each in columns if each.name not in others]),
            schema_of,
            renames,
            framing=framing,
            foreign=foreign,
            only=only,
            own=own,
            message=message,
            changes=changes,
        )

    def rows(self, records: Records) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        """Rows of the records that can be decoded, and (place, reason) of those that cannot."""
        decoded: dict[bytes, tuple[list[int], list[Any]]] = {}
        refused = []
        keys: dict[int, Any] = {}
        for place, value in enumerate(records.values):
            try:
                writer, row = self.values.decode(value)
                if self._key is not None:
                    keys[place] = self._key.read(records.keys[place])
            except Unreadable as verdict:
                refused.append((place, self.values.verdict(value) or verdict.reason))
                continue
            places, found = decoded.setdefault(writer.frame, ([], []))
            places.append(place)
            found.append(row)
        batches = []
        for frame, (places, found) in decoded.items():
            writer = self.values.writer(frame)
            for kept, values in self._convertible(writer, places, found, refused):
                key = self._key.array([keys[place] for place in kept]) if self._key else None
                batches.append(self._batch(records.select(kept), values, key, writer.schema_id))
        return batches, refused

    def tombstones(self, records: Records) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        """What records without a value say of their rows: key and place, the other columns are null. As `rows` otherwise."""
        keys: dict[int, Any] = {}
        refused = []
        for place, key in enumerate(records.keys):
            try:
                keys[place] = self._key.read(key) if self._key else None
            except Unreadable as verdict:
                refused.append((place, verdict.reason))
        found = records.select(list(keys))
        nulls = [pa.nulls(len(found), each.type) for each in self.values.columns]
        array = self._key.array(list(keys.values())) if self._key else None
        return [self._batch(found, nulls, array, None)], refused

    def judge(self, records: Records) -> list[str | None]:
        """Of each record why it is no row; None where it is one. JSON with a member twice may be refused for the first one."""
        found = map(self.verdict, records.values, records.keys)
        return [
            verdict or self.values.doubt(value) for verdict, value in zip(found, records.values, strict=True)
        ]

    def verdict(self, value: bytes | None, key: bytes | None = None) -> str | None:
        """Why a record with this value and key is no row; None where it is one."""
        if found := self.values.verdict(value):
            return found
        try:
            if self._key is not None:
                self._key.read(key)
        except Unreadable as verdict:
            return verdict.reason
        return None

    def _convertible(
        self, writer: Writer, places: list[int], found: list[Any], refused: list[tuple[int, str]]
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

    def _batch(self, records: Records, values: list[Any], key: Any, schema_id: int | None) -> pa.RecordBatch:
        kafka = kafka_struct(self.columns.field(SYSTEM_COLUMN).type, records, self._topic, schema_id)
        arrays, made = iter(values), {SYSTEM_COLUMN: kafka}
        if self._key is not None:
            made[self._key.column] = key
        columns = [made[name] if name in made else next(arrays) for name in self.columns.names]
        return pa.record_batch(columns, schema=self.columns)


class Values:
    """Decodes values by their frames. `only`: they have none, and this is the schema of all. `whole`: that is the one column."""

    def __init__(
        self,
        columns: pa.Schema,
        schema_of: Callable[[int], registry.Schema | None],
        renames: Renames = MappingProxyType({}),
        *,
        framing: Framing = CONFLUENT,
        foreign: Callable[[bytes], bool] = lambda _: False,
        only: registry.Schema | None = None,
        own: str | None = None,
        message: str | None = None,
        changes: Sequence[str] | None = None,
        whole: bool = False,
    ) -> None:
        self.columns = columns
        self._schema_of = schema_of
        self._renames = renames
        self._framing = framing
        self._foreign = foreign
        self._only = only
        self._own = own
        self._message = message
        self._changes = changes
        self._whole = whole
        self._writers: dict[bytes, Writer | str] = {}

    def decode(self, value: bytes | None) -> tuple[Writer, Any]:
        """The writer of a value, and what it makes of it.

        Raises:
            Unreadable: it is no row.
        """
        if self._only is not None:
            if value is None and self._only.type not in PLAIN:
                raise Unreadable("null_value")
            writer = self.writer(b"")
            return writer, writer.decode(value)
        if value is None:
            raise Unreadable("null_value")
        writer = self.writer(self._framing.frame(value))
        return writer, writer.decode(self._framing.plain(value))

    def verdict(self, value: bytes | None) -> str | None:
        """Why a value is no row; None where it is one."""
        try:
            writer, row = self.decode(value)
            writer.project([row])
        except Unreadable as verdict:
            return verdict.reason
        except MISFIT:
            return "malformed"
        return None

    def doubt(self, value: bytes | None) -> str | None:
        """Why a value that can be decoded may be no row for all that."""
        return "malformed" if self.decode(value)[0].is_ambiguous(value) else None

    def writer(self, frame: bytes) -> Writer:
        found = self._writers.get(frame)
        if found is None:
            found = self._writers[frame] = self._look_up(frame)
        if isinstance(found, str):
            raise Unreadable(found)
        return found

    def _look_up(self, frame: bytes) -> Writer | str:
        schema = self._only or self._schema_of(self._framing.number(frame))
        if schema is None:
            return "unknown_schema_id"
        if self._only is None and self._foreign(frame):
            return "incompatible_schema"
        try:
            if self._changes is not None:
                return ChangeWriter(frame, schema, self.columns, self._renames, self._changes)
            if self._whole:
                return whole_writer(frame, schema, self.columns, self._renames, self._message)
            return writer_of(frame, schema, self.columns, self._renames, self._own, self._message)
        except (
            Unreadable,
            SchemaProblem,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            return "incompatible_schema"


class Keys:
    """Reads keys into their column; null where a record has none, and where `values` is None: they were not read then."""

    def __init__(self, field: pa.Field, values: Values | None) -> None:
        self.column: str = field.name
        self._type = field.type
        self._values = values

    def read(self, key: bytes | None) -> Any:
        """The value of the column.

        Raises:
            Unreadable: `key_...`.
        """
        if key is None or self._values is None:
            return None
        try:
            writer, row = self._values.decode(key)
            [array] = writer.project([row])
        except MISFIT:
            raise Unreadable("key_malformed") from None
        except Unreadable as verdict:
            by_schema = verdict.reason in ("unknown_schema_id", "incompatible_schema")
            raise Unreadable(f"key_{verdict.reason}" if by_schema else "key_malformed") from None
        return array

    def array(self, found: list[Any]) -> Any:
        arrays = [pa.nulls(1, self._type) if each is None else each for each in found]
        return pa.concat_arrays(arrays) if arrays else pa.nulls(0, self._type)


def kafka_struct(kind: Any, records: Records, topic: str, schema_id: int | None) -> Any:
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
        "timestamp": list(map(moment, records.timestamps_ms)),
        "timestamp_type": records.timestamp_types,
        "key": records.keys,
        "headers": headers,
        "schema_id": [schema_id] * size,
    }
    return pa.StructArray.from_arrays(
        [pa.array(made[each.name], each.type) for each in kind], fields=list(kind)
    )
