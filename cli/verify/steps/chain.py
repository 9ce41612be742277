"""The steps of a table as one chain, applied batch by batch without Spark.

Before the first exploded list a step works on records, behind it on rows. If one row of a record fails, the record makes none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.config.steps import UNMET, Expect, Filter, Flatten, Lookup, Mask, Route, Sql, Step
from calve.schema.columns import CHANGE
from cli.verify.columns import (
    column_at,
    ends,
    entries,
    has_changes,
    laid_out,
    lengths,
    number,
    places_of,
    systems,
)
from cli.verify.formats.decoding import Decoded, Decoding
from cli.verify.formats.fields import EMPTIED, LEFT_OUT, Outcome
from cli.verify.steps.lookup import Others, looked_up, routed
from cli.verify.steps.queries import Queries, filtering, lacking, rejected
from cli.verify.topic import Records

Keys = Mapping[str, tuple[str, ...]]
"""The keys of maps that become columns, by the column of the maps."""


def flattened(rows: pa.RecordBatch, step: Flatten, stay: Collection[str]) -> pa.RecordBatch:
    """Structs, except those that stay, as columns named by their paths.

    Then a row per item of the list to explode, and one per record without items.
    """
    keys = {path.replace(".", step.separator): names for path, names in step.maps.items()}
    if step.explode is None:
        return _in_columns(rows, step.separator, keys, {*stay, *systems(rows.schema)})
    inside = {path.replace(".", step.separator) for path in step.maps if path.startswith(f"{step.explode}.")}
    of_record = {name: each for name, each in keys.items() if name not in inside}
    made = _in_columns(rows, step.separator, of_record, {*stay, *systems(rows.schema)})
    name = step.explode.replace(".", step.separator)
    place = made.schema.get_field_index(name)
    sizes = lengths(made.column(name))
    parents = np.repeat(np.arange(len(sizes)), np.maximum(sizes, 1))
    is_item = sizes[parents] > 0
    items = pc.list_flatten(made.column(name)).take(pa.array(np.cumsum(is_item) - 1, mask=~is_item))
    exploded = made.take(pa.array(parents)).set_column(place, pa.field(name, items.type), items)
    of_items = {name: each for name, each in keys.items() if name in inside}
    return _in_columns(exploded, step.separator, of_items, {*made.schema.names} - {name})


def _in_columns(rows: pa.RecordBatch, separator: str, keys: Keys, stay: Collection[str]) -> pa.RecordBatch:
    found: dict[str, Any] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        found |= {name: column} if name in stay else dict(_leaves(name, column, separator, keys))
    return pa.RecordBatch.from_pydict(found)


def _leaves(name: str, column: Any, separator: str, keys: Keys) -> Iterator[tuple[str, Any]]:
    if pa.types.is_struct(column.type):
        for each, inner in zip(column.type, column.flatten(), strict=True):
            yield from _leaves(f"{name}{separator}{each.name}", inner, separator, keys)
    elif name in keys:
        yield name, _without(column, keys[name])
        for key in keys[name]:
            wanted = pa.scalar(key, column.type.key_type)
            yield f"{name}{separator}{key}", pc.map_lookup(column, wanted, "last")
    else:
        yield name, column


def _without(maps: Any, names: Collection[str]) -> Any:
    lists = entries(maps)
    keys, values = pc.list_flatten(lists).flatten()
    kept = pc.invert(pc.is_in(keys, pa.array(names, keys.type)))
    sizes = np.bincount(pc.list_parent_indices(lists).filter(kept), minlength=len(maps))
    left = keys.filter(kept), values.filter(kept)
    return pa.MapArray.from_arrays(ends(sizes), *left, maps.type, mask=maps.is_null())


class Run(Protocol):
    """A step. tombstones: the rows have only the key."""

    def __call__(self, rows: pa.RecordBatch, *, tombstones: bool) -> Outcome: ...


Masks = Callable[[pa.RecordBatch, Mask], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Chain:
    """All steps, each with whether a record may have several rows by then."""

    runs: Sequence[tuple[Run, bool]]

    @property
    def explodes(self) -> bool:
        return any(several for _, several in self.runs)

    def behind(self, run: Run) -> Chain:
        """The chain with a step before it."""
        return Chain([(run, False), *self.runs])

    def columns(self, source: pa.Schema) -> pa.Schema:
        """The columns of the rows made from rows with these columns."""
        return self.run(pa.RecordBatch.from_pylist([], source))[0].schema

    def run(self, rows: pa.RecordBatch, *, tombstones: bool = False) -> Outcome:
        """The resulting rows, and why records make none: place -> a word of `REASONS`, `LEFT_OUT` or `EMPTIED`."""
        without: dict[int, str] = {}
        before = places_of(rows)
        for run, several in self.runs:
            rows, lost = run(rows, tombstones=tombstones)
            for place, reason in lost.items():
                if reason != LEFT_OUT:
                    without[place] = min(reason, without.get(place, reason))
                elif not several:
                    without[place] = reason
        if self.explodes:
            rejected = pc.is_in(places_of(rows), pa.array(without, pa.int64()))
            rows = rows.filter(pc.invert(rejected))
            empty = before.filter(pc.invert(pc.is_in(before, places_of(rows))))
            without = dict.fromkeys(empty.to_pylist(), EMPTIED) | without
        return rows, without


@dataclass(frozen=True, slots=True)
class Stepped:
    """A `Decoder` with steps: its rows are those behind the steps, as `columns` or as the steps make them.

    keeps: rows that a database deleted stay in the table.
    """

    decoder: Decoding
    chain: Chain
    columns: pa.Schema | None
    keeps: bool = False

    def rows(self, records: Records, *, tombstones: bool = False) -> Decoded:
        batches, refused = self.decoder.rows(records, tombstones=tombstones)
        if not batches:
            return Decoded([], refused)
        every = pa.concat_batches(batches)
        writes = pa.array([not tombstones] * every.num_rows)
        if has_changes(every.schema) and not tombstones:
            only_keys = ("t", "m") if self.keeps else ("d", "t", "m")
            op = column_at(every, f"{CHANGE['name']}.op")
            writes = pc.invert(pc.is_in(op, pa.array(only_keys)))
        made, without = [], dict[int, str]()
        for part, deletes in ((every.filter(writes), False), (every.filter(pc.invert(writes)), True)):
            if part.num_rows:
                rows, stopped_by = self.chain.run(part, tombstones=deletes)
                made.append(self._laid_out(rows))
                without |= stopped_by
        places = enumerate(map(number, records.partitions, records.offsets))
        stopped = [(n, without[each]) for n, each in places if each in without]
        return Decoded(made, [*refused, *stopped])

    def dropped(self, records: Records) -> list[pa.RecordBatch]:
        batches, _ = self.decoder.rows(records)
        return [self._laid_out(self.chain.run(each, tombstones=True)[0]) for each in batches]

    def _laid_out(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows if self.columns is None else laid_out(rows, self.columns)

    def doubtful(self, records: Records) -> set[int]:
        return self.decoder.doubtful(records)


def chain_of(
    steps: Sequence[Step],
    queries: Queries,
    stay: Collection[str] = (),
    mask: Masks | None = None,
    others: Others | None = None,
) -> Chain:
    """stay: structs that are never flattened. mask, others: None without such a step."""
    runs: list[tuple[Run, bool]] = []
    several = False
    for each in steps:
        several = several or (isinstance(each, Flatten) and each.explode is not None)
        runs.append((_run_of(each, queries, stay, mask, others), several))
    return Chain(runs)


def _run_of(
    step: Step, queries: Queries, stay: Collection[str], mask: Masks | None, others: Others | None
) -> Run:
    def plain(rows: pa.RecordBatch, *, tombstones: bool) -> Outcome:
        match step:
            case Route():
                return routed(rows, step, tombstones=tombstones)
            case Flatten():
                return flattened(rows, step, stay), {}
            case Filter() | Expect():
                judged = queries.where(rows, step.condition, tombstones=tombstones)
                return judged if isinstance(step, Filter) else required(judged, step)
            case Sql():
                return queries.select(rows, step.query, tombstones=tombstones)
            case Lookup() if others is not None:
                return looked_up(rows, step, others(step), tombstones=tombstones)
            case Mask() if mask is not None:
                return mask(rows, step), {}
        raise AssertionError(step)

    def run(rows: pa.RecordBatch, *, tombstones: bool) -> Outcome:
        if tombstones or not has_changes(rows.schema):
            return plain(rows, tombstones=tombstones)
        lost = lacking(rows, _reads(step, rows, queries))
        return rejected(rows, lost, plain(rows.filter(pc.invert(lost)), tombstones=False))

    return run


def required(judged: Outcome, step: Expect) -> Outcome:
    """The outcome of an expectation, by that of a filter with its condition."""
    made, without = judged
    reason = LEFT_OUT if step.drop else UNMET
    return made, {place: reason if why == LEFT_OUT else why for place, why in without.items()}


def _reads(step: Step, rows: pa.RecordBatch, queries: Queries) -> Collection[str]:
    """The columns by which the step judges a record."""
    match step:
        case Route():
            return step.column.split(".")[:1]
        case Lookup():
            return [path.split(".")[0] for path in step.on]
        case Flatten():
            return step.maps
        case Filter() | Expect():
            return queries.reads(rows, filtering(step.condition)).condition
        case Sql():
            return queries.reads(rows, step.query).condition
    return ()
