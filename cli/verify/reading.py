"""How the topic's records are decoded: by calve.yaml, and by what each round noted of how it read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa

from calve.config import job
from calve.decoding.formats import Top, message_prefixes
from calve.decoding.record_schemas import KEY, of_changes, subjects_of
from calve.names import SYSTEM_COLUMN
from calve.registry.registry import FRAMED, Registry, as_it_was, identity
from calve.schema.evolution import SchemaProblem
from calve.schema.inference import EMPTY
from calve.schema.protobuf.files import has_message, load, message_of
from calve.schema.wire import NO_ID, Schema
from calve.table.position import Offsets
from cli.verify.claim import Round, Rounds
from cli.verify.counts import Filters, Key
from cli.verify.formats.cloud_events import Events
from cli.verify.formats.decoding import Decoded, Decoder, Decoding, Keys, Values
from cli.verify.formats.fields import CONFLUENT, GLUE, Unreadable
from cli.verify.steps.shape import Shapes
from cli.verify.topic import Records, Sources

ReadWith = Mapping[str, str] | None
"""How a round read: schema of values without a frame, keys, steps. None: not noted, so as calve.yaml says now."""


@dataclass(slots=True)
class DecoderByRound:
    """A `Decoder` for records of many rounds: each record is read as its round noted that it read.

    `decoder_for` makes decoders; None: the schemas or steps no longer exist. `alike`: all rounds read as calve.yaml says now.
    `redriven`: the round of the redrive that read a record, by its place; `redrives`: these rounds.
    """

    rounds: Sequence[Round]
    decoder_for: Callable[[ReadWith], Decoding | None]
    alike: bool = False
    redrives: Sequence[Round] = ()
    redriven: Mapping[Key, str] = field(default_factory=dict)
    _reading: Rounds = field(init=False)
    _backfills: list[Round] = field(init=False)
    _made: dict[tuple[tuple[str, str], ...] | None, Decoding | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._reading = Rounds(self.rounds)
        self._backfills = [each for each in self.rounds if each.remade]

    def rows(self, records: Records, *, tombstones: bool = False) -> Decoded:
        made = Decoded([], [])
        for decoder, mine in self._decoders(records):
            batches, refused = decoder.rows(records.select(mine), tombstones=tombstones)
            made.batches.extend(batches)
            made.refused.extend((mine[place], reason) for place, reason in refused)
        return made

    def dropped(self, records: Records) -> list[pa.RecordBatch]:
        found = ((mine, decoder) for decoder, mine in self._decoders(records))
        return [batch for mine, decoder in found for batch in decoder.dropped(records.select(mine))]

    def doubtful(self, records: Records) -> set[int]:
        found = ((mine, decoder.doubtful(records.select(mine))) for decoder, mine in self._decoders(records))
        return {mine[place] for mine, doubtful in found for place in doubtful}

    def provable_from(self) -> Offsets:
        """The first offset, by partition, after all rounds whose schemas or steps no longer exist."""
        return {
            partition: offset
            for each in reversed(self.rounds)
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
        if self.alike:
            return [(self._known(None), range(len(records)))]
        places: dict[int, tuple[Decoding, list[int]]] = {}
        for n in range(len(records)):
            decoder = self._known(self._read_with(*records.place(n)))
            places.setdefault(id(decoder), (decoder, []))[1].append(n)
        return places.values()

    def _read_with(self, partition: int, offset: int) -> ReadWith:
        reading = self._backfill(partition, offset)
        if reading is None and (redrive := self.redriven.get((partition, offset))) is not None:
            reading = next((each for each in self.redrives if each.round == redrive), None)
        elif reading is None:
            reading = self._reading.reading(partition, offset)
        return None if reading is None else reading.read_with

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
            self._made[key] = self.decoder_for(read_with)
        return self._made[key]


def filters_of(
    sources: Sources, topic: str, registry: Registry | None, rounds: Sequence[Round], *, complete: bool
) -> Filters:
    """The filter of other tables' records. complete: no round's ledger has expired."""
    framing = GLUE if isinstance(sources.registry, job.GlueRegistry) else CONFLUENT
    if registry is None or not sources.value.registered:
        return Filters(rounds, complete, framing)
    subjects, name = subjects_of(registry, sources.value, topic), sources.value.message

    @cache
    def known_subjects(frame: bytes) -> list[str] | None:
        number = framing.schema_id(frame)
        return None if registry.by_id(number) is None else registry.subjects_of(number)

    @cache
    def others(frame: bytes) -> tuple[bytes, ...]:
        """The prefixes of values that are other messages than the table's: of all, if the schema lacks that message."""
        schema = registry.by_id(framing.schema_id(frame))
        if name is None or schema is None or schema.type != "PROTOBUF":
            return ()
        try:
            file = load(schema)
        except SchemaProblem:
            return ()
        if not has_message(file, name):
            return (b"",)
        own, _ = message_of(file, name)
        return tuple(frame + each for path, each in message_prefixes(file, framing).items() if path != own)

    def other(value: bytes) -> bool:
        try:
            plain = framing.inflated(value)
        except Unreadable:
            plain = b""
        return plain.startswith(others(framing.start(value)))

    return Filters(
        rounds,
        complete,
        framing,
        subjects_of=known_subjects,
        ours=subjects.matching,
        shared=subjects.shared,
        other=None if name is None else other,
    )


@dataclass(frozen=True, slots=True)
class Decoders:
    """Makes decoders. `registry`: None if it is not used. changes: the fields that order a database's changes.

    learnt: the schema that a table of inferred columns notes. It only grows: a round read by the first columns of it.
    """

    sources: Sources
    topic: str
    shapes: Shapes
    registry: Registry | None
    filters: Filters
    changes: Sequence[str] | None
    learnt: str | None = None

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
        """The decoder of values and keys. Raises LookupError if a schema no longer exists."""
        value, key = self.sources.value, self._keys(columns, read_with)
        events = self._events(columns, read_with)
        others = {SYSTEM_COLUMN, *(each.column for each in (key, events) if each)}
        top = Top(value.column, value.rest, message=value.message)
        if self.changes is not None:
            top = of_changes(top, value, self.changes)
        if top.document and read_with is not None and read_with.get("document") != identity(top.document):
            raise LookupError
        own = pa.schema([each for each in columns if each.name not in others])
        return Decoder(columns, self.topic, self._values(own, value, "value", top, read_with), key, events)

    def _events(self, table: pa.Schema, read_with: ReadWith) -> Events | None:
        name, noted = self.sources.value.cloudevents, None if read_with is None else read_with.get("event")
        if noted not in (None, name):
            raise LookupError
        if name is None or name not in table.names:
            return None
        read = read_with is None or noted is not None
        return Events(table.field(name), framed=self.sources.value.framed, read=read)

    def _keys(self, table: pa.Schema, read_with: ReadWith) -> Keys | None:
        source = self.sources.key
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
        top = Top(name, message=source.message)
        return Keys(column, self._values(pa.schema([column]), source, "key", top, read_with))

    def _values(
        self, columns: pa.Schema, source: job.Source, part: job.PartName, top: Top, read_with: ReadWith
    ) -> Values:
        registry = self.registry
        versions: list[Schema] = []
        if registry is not None and source.registered:
            versions = subjects_of(registry, source, self.topic, part).listed()
        return Values(
            columns,
            registry.by_id if registry else lambda _: None,
            top,
            versions,
            self.filters.framing,
            self.filters.foreign if self.filters.shared and part == "value" else lambda _: False,
            self._only(source, versions, None if read_with is None else read_with.get(part, FRAMED)),
        )

    def _only(self, source: job.Source, versions: list[Schema], stated: str | None) -> Schema | None:
        """The one schema of values without a frame. Raises LookupError if it is not the `stated` one of a round's note."""
        if source.framed:
            if stated not in (None, FRAMED):
                raise LookupError
            return None
        if source.infer is not None:
            found = as_it_was(self.learnt or EMPTY, stated)
        elif not source.registered:
            found = Schema(NO_ID, source.schema or "", source.format.upper())
        elif stated and stated.isdecimal() and self.registry:
            found = self.registry.by_id(int(stated)) or Schema(NO_ID, "")
        else:
            found = versions[-1]
        if stated not in (None, identity(found)):
            raise LookupError
        return found
