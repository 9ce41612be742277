"""What records are decoded to, where that is not what the table holds: by the schemas as they are now."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema as TableSchema

from calve import job
from calve.columns import Json, with_ids
from calve.parts import KEY, parts_of
from calve.registry import open_registry
from calve.totals import require_same_columns, with_kafka
from cli.verify.columns import iceberg_columns
from cli.verify.decoding import Decoder, Decoding
from cli.verify.modes import Mode
from cli.verify.steps import Chain, Stepped, chain_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from cli.verify.sources import Sources


@dataclass(frozen=True, slots=True)
class Shape:
    """source: the columns that records are decoded to. chain: the steps behind; None: there are none. columns: those of the rows
    that come of it; None: they are as the steps make them.
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


def shape_of(table: Table, columns: pa.Schema, mode: Mode | None, sources: Sources, topic: str) -> Shape:
    """The shape of the rows of a table with these columns, or of those that its totals are made of.

    Raises:
        Suspended: the schemas or the steps do not make the columns of the totals any more.
        Retryable, Fatal, ConfigError: as `calve.registry`.
    """
    totals = mode.totals if mode else None
    if totals is None and not sources.steps:
        return Shape(columns)
    records = _records(sources, topic)
    numbered = json.dumps(with_ids(with_kafka(records)) | {"schema-id": 0})
    source = schema_to_pyarrow(TableSchema.model_validate_json(numbered), include_field_ids=False)
    chain = chain_of(sources.steps, _stay(mode, sources)) if sources.steps else None
    if totals is None:
        return Shape(source, chain, columns)
    if chain is not None:
        records = iceberg_columns(chain.run(pa.RecordBatch.from_pylist([], source))[0].schema)
    held = json.loads(table.schema().model_dump_json())
    require_same_columns(".".join(table.name()), held, records, totals)
    return Shape(source, chain)


def _records(sources: Sources, topic: str) -> Json:
    asked = any(each is not None and each.registered for each in (sources.value, sources.key))
    settings = job.Table(topic, topic, value=sources.value, key=sources.key)
    parts = parts_of(settings, open_registry(sources.registry) if asked else None)
    return parts.first_columns(parts.versions())


def _stay(mode: Mode | None, sources: Sources) -> set[str]:
    """The structs that are never flattened: what a tombstone deletes by."""
    if mode is None or not mode.newest or not mode.deletes or sources.key is None:
        return set()
    return {sources.key.column or KEY}
