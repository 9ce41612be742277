"""The columns that records are decoded to if they are not the table's: by the schemas as a round knew them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from calve.config import job
from calve.config.masking_keys import read_keys
from calve.config.steps import NOTE, Mask, Step, noted
from calve.decoding.field_quarantine import admitted, fields_in, leaves, only
from calve.decoding.record_schemas import KEY, RecordSchemas, Versions, record_schemas_of
from calve.modes.aggregate import require_same_columns, with_kafka
from calve.modes.upsert import ChangeData
from calve.schema.columns import Json
from cli.verify.columns import arrow_columns, iceberg_columns, laid_out
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
    the steps make them. keeps: as in `Stepped`.
    """

    source: pa.Schema
    chain: Chain | None = None
    columns: pa.Schema | None = None
    keeps: bool = False

    @property
    def explodes(self) -> bool:
        return self.chain is not None and self.chain.explodes

    def around(self, decoder: Decoder) -> Decoding:
        return decoder if self.chain is None else Stepped(decoder, self.chain, self.columns, self.keeps)


Shapes = Callable[[Mapping[str, str] | None], Shape | None]
"""The shape by a round's note of how it read; a note None means the schemas as they are now. No shape: its steps, schemas or
snapshots of other tables no longer exist.
"""


class _Read(NamedTuple):
    """The columns of records. every: of the schemas. let_in: those that a quarantine let through."""

    versions: Versions
    every: Json
    let_in: Json


def shapes_of(
    table: Table, columns: pa.Schema, mode: Mode | None, sources: Sources, topic: str, queries: Queries
) -> Shapes:
    """The shapes of the rows of a table with these columns, or of the rows that it aggregates.

    Raises:
        Suspended: the schemas or the steps no longer make the aggregate's columns.
        Retryable, Fatal, ConfigError: as `calve.registry.registry`.
    """
    totals, steps = mode.totals if mode else None, sources.steps
    if totals is None and not steps:
        return _alone(Shape(columns))
    tables = OtherTables(sources.catalog, table.name()[0], steps)
    ordered = None if mode is None else mode.changes
    changes = None if mode is None or ordered is None else ChangeData(mode.key, source_order=ordered)
    read = job.Table(topic, topic, value=sources.value, key=sources.key, change_data=changes)
    parts = record_schemas_of(read, sources.open_registry())
    versions, fields = parts.versions(), fields_in(table.properties)
    masks = any(isinstance(each, Mask) for each in sources.steps)
    tokens = Tokens(read_keys(sources.masking) if masks and sources.masking else ())
    stay = _stay(mode, sources)

    def shape(read: _Read, others: Others | None) -> Shape:
        source = arrow_columns(with_kafka(read.every))
        if not steps:
            return Shape(source)
        mask = partial(masked, tokens=tokens, tags=parts.tags(read.let_in, read.versions))
        chain = chain_of(steps, queries, stay, mask, others)
        if read.let_in != read.every:
            let_in = arrow_columns(with_kafka(read.let_in))
            chain = chain.behind(lambda rows, *, tombstones: (laid_out(rows, let_in), {}))
        return Shape(source, chain, None if totals else columns, keeps=bool(mode and mode.keeps))

    @cache
    def as_noted(note: str | None) -> _Read | None:
        """The columns of records of rounds with this note of their steps; None if there are none."""
        tags = (
            (read, parts.tags(read.let_in, read.versions)) for read in _reads(parts, versions, fields, steps)
        )
        return next((read for read, own in tags if noted(steps, read.let_in, own) == {NOTE: note}), None)

    now = next(_reads(parts, versions, fields, steps))
    newest = shape(now, tables.of(tables.newest))
    if totals is not None:
        made = iceberg_columns(newest.chain.columns(newest.source)) if newest.chain else now.every
        held = json.loads(table.schema().model_dump_json())
        require_same_columns(".".join(table.name()), held, made, totals)

    if not steps:
        return _alone(newest)

    def shape_of(read_with: Mapping[str, str] | None) -> Shape | None:
        if read_with is None:
            return newest
        found, others = as_noted(read_with.get(NOTE)), tables.of(read_with)
        return shape(found, others) if found and others else None

    return shape_of


def _alone(shape: Shape) -> Shapes:
    """The shape of all rounds without steps."""
    return lambda read_with: None if read_with and NOTE in read_with else shape


def _reads(
    parts: RecordSchemas, versions: Versions, fields: Collection[str] | None, steps: Sequence[Step]
) -> Iterator[_Read]:
    """Candidates for the columns of records, by the versions now, then by fewer of them.

    fields: those that the table's quarantine let through; then those of a table made with fewer versions. None: no quarantine.
    """
    for each in _as_they_were(versions):
        every = parts.first_columns(each)
        if fields is None:
            yield _Read(each, every, every)
            continue
        yield _Read(each, every, only(every, fields))
        had = parts.leaves(every, each)
        for earlier in _as_they_were(each):
            known = leaves(parts.first_columns(earlier)).keys()
            yield _Read(each, every, only(every, admitted(had, known, steps, parts.own_columns)))


def _stay(mode: Mode | None, sources: Sources) -> set[str]:
    """The structs that are never flattened: those in a tombstone's key."""
    if mode is None or not mode.newest or not mode.deletes or sources.key is None:
        return set()
    return {sources.key.column or KEY}


def _as_they_were(versions: Versions) -> Iterator[Versions]:
    """The versions now, then without the last one, and so on."""
    for values in range(len(versions.values), 0, -1):
        for keys in range(len(versions.keys), 0, -1) or (0,):
            yield versions._replace(values=versions.values[:values], keys=versions.keys[:keys])
