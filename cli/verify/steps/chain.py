"""The steps of a table as one chain: what they make of decoded rows, batch by batch.

A step before the first list that is exploded speaks of records, one behind it of rows: what it leaves out is a row then, and a
record of whose rows one cannot be computed makes none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from calve.config.steps import Filter, Flatten, Lookup, Mask, Route, Sql, Step
from cli.verify.columns import Made, laid_out, number, places_of
from cli.verify.formats.decoding import Decoded, Decoding
from cli.verify.steps.flatten import exploded, flattened
from cli.verify.steps.lookup import Others, looked_up, routed
from cli.verify.steps.queries import Queries
from cli.verify.topic import Records


class Run(Protocol):
    """A step. tombstones: of the rows nothing is there but the key."""

    def __call__(self, rows: pa.RecordBatch, *, tombstones: bool) -> Made: ...


Masks = Callable[[pa.RecordBatch, Mask], pa.RecordBatch]
LEFT_OUT = "left out by a step"
EMPTIED = "without a row that a step has not left out"
"""Both stand where the reason of a reject does: records that make no row, and are no dead letters."""


@dataclass(frozen=True, slots=True)
class Chain:
    """All steps, each with whether it, or one before it, makes several rows of a record."""

    runs: Sequence[tuple[Run, bool]]

    @property
    def explodes(self) -> bool:
        """Whether a record may make several rows."""
        return any(several for _, several in self.runs)

    def behind(self, run: Run) -> Chain:
        """The chain with something before it."""
        return Chain([(run, False), *self.runs])

    def columns(self, source: pa.Schema) -> pa.Schema:
        """Those of the rows that are made of rows with these columns."""
        return self.run(pa.RecordBatch.from_pylist([], source))[0].schema

    def run(self, rows: pa.RecordBatch, *, tombstones: bool = False) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The rows that become of these, and why records make none: place -> a word of `REASONS`, `LEFT_OUT` or `EMPTIED`."""
        without: dict[int, str] = {}
        before = places_of(rows)
        for run, several in self.runs:
            made = run(rows, tombstones=tombstones)
            rows = made.rows
            for reason, places in made.failed.items():
                for place in places.to_pylist():
                    without[place] = min(reason, without.get(place, reason))
            if made.left_out is not None and not several:
                without |= dict.fromkeys(made.left_out.to_pylist(), LEFT_OUT)
        if self.explodes:
            rejected = pc.is_in(places_of(rows), pa.array(without, pa.int64()))
            rows = rows.filter(pc.invert(rejected))
            empty = before.filter(pc.invert(pc.is_in(before, places_of(rows))))
            without = dict.fromkeys(empty.to_pylist(), EMPTIED) | without
        return rows, without


@dataclass(frozen=True, slots=True)
class Stepped:
    """Stands where a `Decoder` does: its rows are those behind the steps, as `columns`, or as the steps make them."""

    decoder: Decoding
    chain: Chain
    columns: pa.Schema | None

    def rows(self, records: Records, *, tombstones: bool = False) -> Decoded:
        """As `Decoding.rows`; a reason may also be `LEFT_OUT` or `EMPTIED`."""
        batches, refused = self.decoder.rows(records, tombstones=tombstones)
        if not batches:
            return Decoded([], refused)
        rows, without = self.chain.run(pa.concat_batches(batches), tombstones=tombstones)
        made = rows if self.columns is None else laid_out(rows, self.columns)
        places = enumerate(map(number, records.partitions, records.offsets))
        stopped = [(n, without[each]) for n, each in places if each in without]
        return Decoded([made], [*refused, *stopped])

    def doubtful(self, records: Records) -> set[int]:
        """As `Decoding.doubtful`."""
        return self.decoder.doubtful(records)


def chain_of(
    steps: Sequence[Step],
    queries: Queries,
    stay: Collection[str] = (),
    mask: Masks | None = None,
    others: Others | None = None,
) -> Chain:
    """stay: structs that are never flattened. mask, others: None where there is no such step."""
    runs: list[tuple[Run, bool]] = []
    several = False
    for each in steps:
        several = several or (isinstance(each, Flatten) and each.explode is not None)
        runs.append((_run_of(each, queries, stay, mask, others), several))
    return Chain(runs)


def _run_of(
    step: Step, queries: Queries, stay: Collection[str], mask: Masks | None, others: Others | None
) -> Run:
    def run(rows: pa.RecordBatch, *, tombstones: bool) -> Made:
        match step:
            case Route():
                return routed(rows, step, tombstones=tombstones)
            case Flatten():
                return Made(exploded(flattened(rows, step, stay), step))
            case Filter():
                return queries.where(rows, step.condition, tombstones=tombstones)
            case Sql():
                return queries.select(rows, step.query, tombstones=tombstones)
            case Lookup() if others is not None:
                return looked_up(rows, step, others(step), tombstones=tombstones)
            case Mask() if mask is not None:
                return Made(mask(rows, step))
        raise AssertionError(step)

    return run
