"""How the topic's records are decoded: by calve.yaml, and by what each round noted of how it read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from calve.config import job
from calve.decoding.formats import Top
from calve.decoding.record_schemas import KEY, subjects_of
from calve.names import SYSTEM_COLUMN
from calve.registry.registry import FRAMED, NO_ID, Registry, identity
from calve.schema.wire import Schema
from calve.table.position import Offsets
from cli.verify.claim import Round, Rounds
from cli.verify.counts import Filters
from cli.verify.formats.decoding import Decoded, Decoder, Decoding, Keys, Values
from cli.verify.formats.fields import CONFLUENT, GLUE, Framing, Unreadable
from cli.verify.formats.protobuf import message_in, message_named
from cli.verify.formats.protobuf_schema import compiled
from cli.verify.steps.shape import Shapes
from cli.verify.topic import Records, Sources

ReadWith = Mapping[str, str] | None
"""How a round read: schema of values without a frame, keys, steps. None: not noted, so as calve.yaml says now."""


class Reading(NamedTuple):
    """The decoder of a topic's records, and the filter of other tables' records."""

    decoder: DecoderByRound
    filters: Filters


def reading_of(
    sources: Sources,
    topic: str,
    shapes: Shapes,
    rounds: Sequence[Round],
    *,
    complete: bool,
    changes: Sequence[str] | None = None,
) -> Reading:
    """The reading of the topic's records into rows of these shapes.

    complete: no round's ledger has expired. changes: as those of `Values`.

    Raises:
        Retryable, Fatal, ConfigError: as `calve.registry.registry`.
    """
    registry = sources.open_registry()
    filters = _filters(sources, topic, registry, rounds, complete=complete)
    made = _Maker(sources, topic, shapes, registry, filters, changes)
    alone = sources.value.framed and sources.key is None and not sources.steps
    alike = alone and not any(each.read_with for each in rounds)
    return Reading(DecoderByRound(rounds, made.of, alike=alike), filters)


class DecoderByRound:
    """A `Decoder` for records of many rounds: each record is read as its round noted that it read.

    A redriven record's round is the redrive. `decoder_for` makes decoders; None: the schemas or steps no longer exist. `alike`:
    all rounds read as calve.yaml says now.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        decoder_for: Callable[[ReadWith], Decoding | None],
        *,
        alike: bool = False,
    ) -> None:
        self._rounds = rounds
        self._reading = Rounds(rounds)
        self._backfills = [each for each in rounds if each.remade]
        self._redrives: dict[str, ReadWith] = {}
        self._redriven: Mapping[tuple[int, int], str] = {}
        self._decoder_for = decoder_for
        self._alike = alike
        self._made: dict[tuple[tuple[str, str], ...] | None, Decoding | None] = {}

    def knowing(self, redrives: Sequence[Round], redriven: Mapping[tuple[int, int], str]) -> DecoderByRound:
        """A copy that knows redriven records; `redriven`: the redrive's round by place."""
        found = copy(self)
        found._redrives = {each.round or "": each.read_with for each in redrives}
        found._redriven = redriven
        return found

    def rows(self, records: Records, *, tombstones: bool = False) -> Decoded:
        """As `Decoding.rows`."""
        made = Decoded([], [])
        for decoder, mine in self._decoders(records):
            batches, refused = decoder.rows(records.select(mine), tombstones=tombstones)
            made.batches.extend(batches)
            made.refused.extend((mine[place], reason) for place, reason in refused)
        return made

    def doubtful(self, records: Records) -> set[int]:
        """As `Decoding.doubtful`."""
        return {
            mine[place]
            for decoder, mine in self._decoders(records)
            for place in decoder.doubtful(records.select(mine))
        }

    def provable_from(self) -> Offsets:
        """The first offset, by partition, after all rounds whose schemas or steps no longer exist."""
        return {
            partition: offset
            for each in reversed(self._rounds)
            if self._decoder(each.read_with) is None
            for partition, offset in each.to.items()
            if not self._read_again(each, partition, offset)
        }

    def _read_again(self, each: Round, partition: int, to: int) -> bool:
        """Whether a backfill that can be decoded read all of the round's partition again."""
        first = each.start.get(partition)
        backfill = None if first is None else self._backfill(partition, first)
        return (
            backfill is not None
            and backfill.remade[partition][1] >= to
            and self._decoder(backfill.read_with) is not None
        )

    def _decoders(self, records: Records) -> Iterable[tuple[Decoding, Sequence[int]]]:
        """The decoders of the records, with the places for each."""
        if self._alike:
            return [(self._known(None), range(len(records)))]
        places: dict[int, tuple[Decoding, list[int]]] = {}
        for n, place in enumerate(zip(records.partitions, records.offsets, strict=True)):
            decoder = self._known(self._read_with(*place))
            places.setdefault(id(decoder), (decoder, []))[1].append(n)
        return places.values()

    def _read_with(self, partition: int, offset: int) -> ReadWith:
        if (backfill := self._backfill(partition, offset)) is not None:
            return backfill.read_with
        if (redrive := self._redriven.get((partition, offset))) is not None:
            return self._redrives.get(redrive)
        each = self._reading.reading(partition, offset)
        return None if each is None else each.read_with

    def _backfill(self, partition: int, offset: int) -> Round | None:
        return next((each for each in self._backfills if each.remakes(partition, offset)), None)

    def _known(self, read_with: ReadWith) -> Decoding:
        found = self._decoder(read_with) or self._decoder(None)
        if found is None:
            raise AssertionError("what calve.yaml says now is known")
        return found

    def _decoder(self, read_with: ReadWith) -> Decoding | None:
        key = None if read_with is None else tuple(sorted(read_with.items()))
        if key not in self._made:
            self._made[key] = self._decoder_for(read_with)
        return self._made[key]


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
    """Whether a value is another message than the one that the table names.

    It always is if its schema lacks the message.
    """
    if name is None:
        return None

    @cache
    def messages(frame: bytes) -> list[Descriptor] | None:
        schema = registry.by_id(framing.schema_id(frame))
        try:
            return None if schema is None or schema.type != "PROTOBUF" else compiled(schema).messages
        except Unreadable:
            return None

    def other(value: bytes) -> bool:
        known = messages(framing.start(value))
        if known is None:
            return False
        wanted = message_named(known, name)
        try:
            found, _ = message_in(known, framing.inflated(value)[framing.size :], framing)
        except Unreadable:
            return wanted is None
        return wanted is None or (found is not None and found is not wanted)

    return other


def _known_subjects(registry: Registry, framing: Framing) -> Callable[[bytes], list[str] | None]:
    """Subjects of a frame's schema; None if the registry does not know the schema."""

    @cache
    def found(frame: bytes) -> list[str] | None:
        number = framing.schema_id(frame)
        return None if registry.by_id(number) is None else registry.subjects_of(number)

    return found


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes decoders; `registry`: None if it is not used."""

    sources: Sources
    topic: str
    shapes: Shapes
    registry: Registry | None
    filters: Filters
    changes: Sequence[str] | None

    def of(self, read_with: ReadWith) -> Decoding | None:
        """The decoder of a round; None if its schemas or steps no longer exist."""
        shape = self.shapes(read_with)
        if shape is None:
            return None
        try:
            return shape.around(self._decoder(shape.source, read_with))
        except LookupError:
            return None

    def _decoder(self, columns: pa.Schema, read_with: ReadWith) -> Decoder:
        """The decoder of values and keys.

        Raises:
            LookupError: a schema no longer exists.
        """
        value = self.sources.value
        key = self._keys(self.sources.key, columns, read_with)
        others = {SYSTEM_COLUMN, key.column if key else SYSTEM_COLUMN}
        top = Top(value.column, value.rest, message=value.message)
        if self.changes is not None:
            top = replace(top, changes=True, order=tuple(self.changes))
        values = Values(
            pa.schema([each for each in columns if each.name not in others]),
            self._schema_of,
            top,
            self._versions(value, "value"),
            framing=self.filters.framing,
            foreign=self.filters.foreign if self.filters.shared else lambda _: False,
            only=self._only(value, "value", read_with),
        )
        return Decoder(columns, self.topic, values, key)

    def _keys(self, source: job.Source | None, table: pa.Schema, read_with: ReadWith) -> Keys | None:
        if source is None:
            if read_with is not None and "key" in read_with:
                raise LookupError
            return None
        name = source.column or KEY
        if name not in table.names:
            return None
        column = table.field(name)
        if read_with is not None and "key" not in read_with:
            return Keys(column, None)
        top, versions = Top(name, message=source.message), self._versions(source, "key")
        only = self._only(source, "key", read_with)
        framing, columns = self.filters.framing, pa.schema([column])
        return Keys(column, Values(columns, self._schema_of, top, versions, framing=framing, only=only))

    def _only(self, source: job.Source, part: job.PartName, read_with: ReadWith) -> Schema | None:
        """The one schema of values without a frame.

        Raises:
            LookupError: it no longer exists.
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

    def _versions(self, source: job.Source, part: job.PartName) -> list[Schema]:
        if self.registry is None or not source.registered:
            return []
        return subjects_of(self.registry, source, self.topic, part).listed()

    def _schema_of(self, schema_id: int) -> Schema | None:
        return self.registry.by_id(schema_id) if self.registry else None
