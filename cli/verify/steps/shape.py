"""The columns that records are decoded to if they are not the table's: by the schemas as a round knew them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from calve.config import job
from calve.config.masking_keys import read_keys
from calve.config.steps import NOTE, Mask, noted
from calve.decoding.field_quarantine import admitted, fields_in, leaves, only
from calve.decoding.record_schemas import KEY, RecordSchemas, Versions, record_schemas_of
from calve.modes.aggregate import require_same_columns, with_kafka
from calve.schema.columns import Json
from cli.verify.columns import Made, arrow_columns, iceberg_columns, laid_out
from cli.verify.formats.decoding import Decoder, Decoding
from cli.verify.keyed.modes import Mode
from cli.verify.steps.chain import Chain, Stepped, chain_of
from cli.verify.steps.lookup import Others, OtherTables
from cli.verify.steps.mask import Tokens, masked
from cli.verify.steps.queries import Queries

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from cli.verify.topic import Sources


@dataclass(frozen=True, slots=True)
class Shape:
    """source: the columns of decoded records. chain: the steps; None: there are none. columns: of the resulting rows; None: as
    the steps make them.
    """

    source: pa.Schema
    chain: Chain | None = None
    columns: pa.Schema | None = None

    @property
    def explodes(self) -> bool:
        """Whether a record may make several rows."""
        return self.chain is not None and self.chain.explodes

    def around(self, decoder: Decoder) -> Decoding:
        """A decoder with the steps behind it."""
        return decoder if self.chain is None else Stepped(decoder, self.chain, self.columns)


Shapes = Callable[[Mapping[str, str] | None], Shape | None]
"""The shape by a round's note of how it read; a note None means the schemas as they are now. No shape: its steps, schemas or
snapshots of other tables no longer exist.
"""


def shapes_of(
    table: Table, columns: pa.Schema, mode: Mode | None, sources: Sources, topic: str, queries: Queries
) -> Shapes:
    """The shapes of the rows of a table with these columns, or of the rows that it aggregates.

    Raises:
        Suspended: the schemas or the steps no longer make the aggregate's columns.
        Retryable, Fatal, ConfigError: as `calve.registry.registry`.
    """
    totals = mode.totals if mode else None
    if totals is None and not sources.steps:
        return _alone(Shape(columns))
    others = OtherTables(sources.catalog, table.name()[0], sources.steps)
    settings = job.Table(topic, topic, value=sources.value, key=sources.key)
    parts = record_schemas_of(settings, sources.open_registry())
    maker = _Maker(
        sources,
        parts,
        parts.versions(),
        queries,
        _stay(mode, sources),
        _tokens(sources),
        fields_in(table.properties),
        None if totals else columns,
    )
    now = maker.now()
    newest = maker.shape(now, others.of(others.newest))
    if totals is not None:
        made = iceberg_columns(newest.chain.columns(newest.source)) if newest.chain else now.every
        held = json.loads(table.schema().model_dump_json())
        require_same_columns(".".join(table.name()), held, made, totals)
    if newest.chain is None:
        return _alone(newest)
    as_noted = cache(maker.as_noted)

    def shape(read_with: Mapping[str, str] | None) -> Shape | None:
        if read_with is None:
            return newest
        found, seen = as_noted(read_with.get(NOTE)), others.of(read_with)
        return maker.shape(found, seen) if found and seen else None

    return shape


class _Read(NamedTuple):
    """The columns of records. every: of the schemas. let_in: those that a quarantine let through."""

    versions: Versions
    every: Json
    let_in: Json


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the shapes of a table. versions: of the schemas now. fields: those that its quarantine let through; None: no
    quarantine. columns: as in `Shape`.
    """

    sources: Sources
    parts: RecordSchemas
    versions: Versions
    queries: Queries
    stay: set[str]
    tokens: Tokens
    fields: Collection[str] | None
    columns: pa.Schema | None

    def now(self) -> _Read:
        """The columns of records by the schemas now."""
        return next(self._reads(self.versions))

    def shape(self, read: _Read, seen: Others | None) -> Shape:
        """The shape for these columns. seen: the tables for lookups."""
        source, steps = arrow_columns(with_kafka(read.every)), self.sources.steps
        if not steps:
            return Shape(source, None, self.columns)
        mask = partial(masked, tokens=self.tokens, tags=self.parts.tags(read.let_in, read.versions))
        chain = chain_of(steps, self.queries, self.stay, mask, seen)
        if read.let_in != read.every:
            chain = chain.behind(partial(_with_these, columns=arrow_columns(with_kafka(read.let_in))))
        return Shape(source, chain, self.columns)

    def as_noted(self, note: str | None) -> _Read | None:
        """The columns of records of rounds with this note of their steps; None if there are none."""
        for versions in _as_they_were(self.versions):
            for read in self._reads(versions):
                tags = self.parts.tags(read.let_in, versions)
                if noted(self.sources.steps, read.let_in, tags) == {NOTE: note}:
                    return read
        return None

    def _reads(self, versions: Versions) -> Iterator[_Read]:
        """Candidates for the columns of records with these schemas: those let through by a quarantine, then those of a table made
        with fewer versions.
        """
        every = self.parts.first_columns(versions)
        if self.fields is None:
            yield _Read(versions, every, every)
            return
        yield _Read(versions, every, only(every, self.fields))
        had = self.parts.leaves(every, versions)
        for each in _as_they_were(versions):
            known = leaves(self.parts.first_columns(each)).keys()
            let_in = admitted(had, known, self.sources.steps, self.parts.own_columns)
            yield _Read(versions, every, only(every, let_in))


def _with_these(rows: pa.RecordBatch, *, columns: pa.Schema, tombstones: bool) -> Made:
    return Made(laid_out(rows, columns))


def _tokens(sources: Sources) -> Tokens:
    masks = any(isinstance(each, Mask) for each in sources.steps)
    return Tokens(read_keys(sources.masking) if masks and sources.masking else ())


def _alone(shape: Shape) -> Shapes:
    """The shape of all rounds without steps."""
    return lambda read_with: None if read_with and NOTE in read_with else shape


def _as_they_were(versions: Versions) -> Iterator[Versions]:
    """The versions now, then without the last one, and so on."""
    for values in range(len(versions.values), 0, -1):
        for keys in range(len(versions.keys), 0, -1) or (0,):
            yield versions._replace(values=versions.values[:values], keys=versions.keys[:keys])


def _stay(mode: Mode | None, sources: Sources) -> set[str]:
    """The structs that are never flattened: those in a tombstone's key."""
    if mode is None or not mode.newest or not mode.deletes or sources.key is None:
        return set()
    return {sources.key.column or KEY}
