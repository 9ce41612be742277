"""Where both sides are read from, and how the records of the topic are, by calve.yaml."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from calve import job
from calve.declared import FRAMED, NO_ID, identity
from calve.parts import subjects_of
from calve.position import Offsets
from calve.registry import Registry, Schema, open_registry
from calve.steps import Step
from cli.verify.claim import Round
from cli.verify.conversion import Unreadable
from cli.verify.decoding import Decoder, Decoding, Keys, Values
from cli.verify.epochs import Epochs, ReadWith
from cli.verify.filters import Filters
from cli.verify.framing import CONFLUENT, GLUE, Framing
from cli.verify.protobuf_schema import compiled
from cli.verify.protobuf_values import message_in, message_named, renames_of_protobuf
from cli.verify.renames import Fields, Renames, avro_records, json_objects, renames_of
from cli.verify.shape import Shapes

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the table, the topic and its schemas are read from, and how its values and keys are.

    masking: the secret with the keys that dead letters are sealed by.
    """

    catalog: Catalog
    kafka: job.Kafka
    registry: job.AnyRegistry | None
    region: str
    value: job.Source = field(default_factory=job.Source)
    key: job.Source | None = None
    steps: tuple[Step, ...] = ()
    masking: str | None = None

    @classmethod
    def of(cls, catalog: Catalog, settings: job.Job, table: job.Table) -> Self:
        """Those of a table of a job."""
        return cls(
            catalog,
            settings.kafka,
            settings.registry,
            settings.lake.region,
            table.value,
            table.key,
            table.steps,
            settings.masking,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """How a topic's records become rows, and which of them are other tables'.

    provable_from: the offsets, by partition, before which nobody can tell how they were read.
    """

    decoder: Decoding
    filters: Filters
    provable_from: Offsets

    def knowing(self, redrives: Sequence[Round], redriven: Mapping[tuple[int, int], str]) -> Decoding:
        """The decoder of records some of which came back from the dead letters; `redriven`: as `Epochs.knowing`."""
        return self.decoder.knowing(redrives, redriven) if isinstance(self.decoder, Epochs) else self.decoder


def reading_of(
    sources: Sources,
    topic: str,
    shapes: Shapes,
    rounds: Sequence[Round],
    *,
    complete: bool,
    changes: Sequence[str] | None = None,
) -> Reading:
    """How the topic's records become rows of these shapes.

    complete: no round's ledger has expired. changes: as those of a `Decoder`.

    Raises:
        Retryable, Fatal, ConfigError: as `calve.registry`.
    """
    asked = any(each is not None and each.registered for each in (sources.value, sources.key))
    registry = open_registry(sources.registry) if asked else None
    filters = _filters(sources, topic, registry, rounds, complete=complete)
    made = _Maker(sources, topic, shapes, registry, filters, changes)
    alone = sources.value.framed and sources.key is None and not sources.steps
    if alone and not any(each.read_with for each in rounds):
        return Reading(made.newest(), filters, {})
    epochs = Epochs(rounds, made.of)
    return Reading(epochs, filters, epochs.provable_from())


def _filters(
    sources: Sources, topic: str, registry: Registry | None, rounds: Sequence[Round], *, complete: bool
) -> Filters:
    framing = GLUE if isinstance(sources.registry, job.GlueRegistry) else CONFLUENT
    if registry is None or not sources.value.registered:
        return Filters(rounds, complete, framing)
    subjects = subjects_of(registry, sources.value, topic)
    return Filters(
        rounds,
        complete,
        framing,
        subjects_of=_known_subjects(registry, framing),
        ours=subjects.matching,
        shared=subjects.shared,
        other=_other_messages(registry, framing, sources.value.message),
    )


def _other_messages(registry: Registry, framing: Framing, name: str | None) -> Callable[[bytes], bool] | None:
    """Whether a value is of another message than the table's, where the table names its message.

    All values are whose schema does not have the message at all.
    """
    if name is None:
        return None

    @cache
    def messages(frame: bytes) -> list[Descriptor] | None:
        schema = registry.by_id(framing.number(frame))
        try:
            return None if schema is None or schema.type != "PROTOBUF" else compiled(schema).messages
        except Unreadable:
            return None

    def other(value: bytes) -> bool:
        known = messages(framing.plain_frame(value))
        if known is None:
            return False
        wanted = message_named(known, name)
        try:
            found, _ = message_in(known, framing.plain(value)[framing.size :], framing)
        except Unreadable:
            return wanted is None
        return wanted is None or (found is not None and found is not wanted)

    return other


def _known_subjects(registry: Registry, framing: Framing) -> Callable[[bytes], list[str] | None]:
    """Subjects of a frame's schema; None where the registry does not know the schema."""

    @cache
    def found(frame: bytes) -> list[str] | None:
        number = framing.number(frame)
        return None if registry.by_id(number) is None else registry.subjects_of(number)

    return found


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes decoders; `registry`: None where nobody asks it."""

    sources: Sources
    topic: str
    shapes: Shapes
    registry: Registry | None
    filters: Filters
    changes: Sequence[str] | None

    def newest(self) -> Decoding:
        found = self.of(None)
        if found is None:
            raise AssertionError("what calve.yaml says now is known")
        return found

    def of(self, read_with: ReadWith) -> Decoding | None:
        """How a round has read; None where that is not known any more."""
        shape = self.shapes.of(read_with)
        if shape is None:
            return None
        try:
            return shape.around(self._decoder(shape.source, read_with))
        except LookupError:
            return None

    def _decoder(self, columns: pa.Schema, read_with: ReadWith) -> Decoder:
        """How values and keys were read.

        Raises:
            LookupError: that is not known any more.
        """
        value, key = self.sources.value, self.sources.key
        return Decoder(
            columns,
            self.topic,
            self._schema_of,
            self._renames(value, "value"),
            framing=self.filters.framing,
            foreign=self.filters.foreign if self.filters.shared else lambda _: False,
            only=self._only(value, "value", read_with),
            own=value.rest or value.column,
            message=value.message,
            key=self._keys(key, columns, read_with),
            changes=self.changes,
        )

    def _keys(self, source: job.Source | None, table: pa.Schema, read_with: ReadWith) -> Keys | None:
        if source is None:
            if read_with is not None and "key" in read_with:
                raise LookupError
            return None
        if (source.column or "key") not in table.names:
            return None
        column = table.field(source.column or "key")
        if read_with is not None and "key" not in read_with:
            return Keys(column, None)
        only, renames = self._only(source, "key", read_with), self._renames(source, "key")
        framing, columns = self.filters.framing, pa.schema([column])
        values = Values(
            columns, self._schema_of, renames, framing=framing, only=only, message=source.message, whole=True
        )
        return Keys(column, values)

    def _only(self, source: job.Source, part: job.PartName, read_with: ReadWith) -> Schema | None:
        """The one schema of bare bytes.

        Raises:
            LookupError: it is not known any more.
        """
        stated = None if read_with is None else read_with.get(part, FRAMED)
        if source.framed:
            if stated not in (None, FRAMED):
                raise LookupError
            return None
        if not source.registered:
            found = Schema(NO_ID, source.schema or "", source.format.upper())
        elif stated and stated.isdecimal() and self.registry:
            found = self.registry.by_id(int(stated)) or Schema(NO_ID, "")
        else:
            found = self._versions(source, part)[-1]
        if stated not in (None, identity(found)):
            raise LookupError
        return found

    def _renames(self, source: job.Source, part: job.PartName) -> Renames:
        return _all_renames(self._versions(source, part)) if source.registered else {}

    def _versions(self, source: job.Source, part: job.PartName) -> list[Schema]:
        if self.registry is None:
            return []
        return subjects_of(self.registry, source, self.topic, part).listed()

    def _schema_of(self, schema_id: int) -> Schema | None:
        return self.registry.by_id(schema_id) if self.registry else None


def _all_renames(versions: Sequence[Schema]) -> Renames:
    """By what Avro and JSON Schemas declare, and by Protobuf's numbers."""
    numbered = renames_of_protobuf(each for each in versions if each.type == "PROTOBUF")
    return {**renames_of(_declared(versions)), **numbered}


def _declared(versions: Iterable[Schema]) -> Iterator[Iterable[Fields]]:
    """The records of each version that is JSON at all."""
    for version in versions:
        with suppress(ValueError):
            yield list((json_objects if version.type == "JSON" else avro_records)(json.loads(version.text)))
