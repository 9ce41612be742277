"""The steps of a table, told without the engine: what they make of decoded rows, batch by batch.

A step before the first list that is exploded speaks of records, one behind it of rows: what it leaves out is a row then, and a
record of whose rows one cannot be computed makes none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.steps import Flatten, Step
from cli.verify.columns import laid_out
from cli.verify.decoding import Decoding
from cli.verify.flatten import exploded, flattened
from cli.verify.places import number, places_of
from cli.verify.topic import Records

LEFT_OUT = "left out by a step"
"""Stands where the reason of a reject does: a record that makes no row, and is no dead letter."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a step makes of rows. left_out: the places of those that it leaves out; failed: of those on which it fails, by why."""

    rows: pa.RecordBatch
    left_out: Any = None
    failed: Mapping[str, Any] = field(default_factory=dict)


Run = Callable[[pa.RecordBatch], Made]


@dataclass(frozen=True, slots=True)
class Chain:
    """All steps, each with whether it, or one before it, makes several rows of a record."""

    runs: Sequence[tuple[Run, bool]]

    @property
    def explodes(self) -> bool:
        """Whether a record may make several rows."""
        return any(several for _, several in self.runs)

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The rows that become of these, and why records make none: place -> a word of `REASONS`, or `LEFT_OUT`."""
        without: dict[int, str] = {}
        for run, several in self.runs:
            made = run(rows)
            rows = made.rows
            for reason, places in made.failed.items():
                for place in places.to_pylist():
                    without[place] = min(reason, without.get(place, reason))
            if made.left_out is not None and not several:
                without |= dict.fromkeys(made.left_out.to_pylist(), LEFT_OUT)
        if without and self.explodes:
            rejected = pc.is_in(places_of(rows), pa.array(without, pa.int64()))
            rows = rows.filter(pc.invert(rejected))
        return rows, without


class Stepped:
    """Stands where a `Decoder` does: its rows are those behind the steps, as `columns`, or as the steps make them."""

    def __init__(self, decoder: Decoding, chain: Chain, columns: pa.Schema | None) -> None:
        self._decoder = decoder
        self._chain = chain
        self._columns = columns

    def rows(self, records: Records) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        """As `Decoder.rows`; a reason may also be `LEFT_OUT`."""
        return self._behind(records, *self._decoder.rows(records))

    def tombstones(self, records: Records) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        """As `Decoder.tombstones`."""
        return self._behind(records, *self._decoder.tombstones(records))

    def judge(self, records: Records, place: int) -> str | None:
        """As `Decoder.judge`."""
        if found := self._decoder.judge(records, place):
            return found
        _, refused = self.rows(records.select([place]))
        return refused[0][1] if refused else None

    def _behind(
        self, records: Records, batches: Sequence[pa.RecordBatch], refused: Sequence[tuple[int, str]]
    ) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
        made = []
        without: dict[int, str] = {}
        for batch in batches:
            rows, reasons = self._chain.run(batch)
            made.append(rows if self._columns is None else laid_out(rows, self._columns))
            without |= reasons
        if not without:
            return made, [*refused]
        places = map(number, records.partitions, records.offsets)
        return made, [*refused, *((n, without[each]) for n, each in enumerate(places) if each in without)]


def chain_of(steps: Sequence[Step], stay: Collection[str] = ()) -> Chain:
    """stay: structs that are never flattened."""
    runs: list[tuple[Run, bool]] = []
    several = False
    for each in steps:
        several = several or (isinstance(each, Flatten) and each.explode is not None)
        runs.append((_run_of(each, stay), several))
    return Chain(runs)


def _run_of(step: Step, stay: Collection[str]) -> Run:
    match step:
        case Flatten():
            return lambda rows: Made(exploded(flattened(rows, step, stay), step))
    raise AssertionError(step)
