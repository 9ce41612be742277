"""The aggregates of groups, computed record by record without the job's code, and compared with the table's rows.

Python's own numbers compute the measures: they know no limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from calve.modes.aggregate import WINDOW_START, column_of
from calve.modes.measures import Arithmetic, Cast, ColumnAt, Expression, Number, Term, columns_in, parse
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import decimal_digits
from cli.verify.claim import Claim, numbers_of, numbers_of_redrives
from cli.verify.columns import column_at
from cli.verify.counts import Key
from cli.verify.dead_letters import Count
from cli.verify.findings import Check, Finding, Findings

if TYPE_CHECKING:
    from calve.modes.aggregate import Aggregate
    from cli.verify.rows import MainRows

CHECK = "groups"
PLACE = ("timestamp", "partition", "offset")

Group = tuple[Any, ...]
EXACT = Context(prec=1000)
"""More digits than any sum needs."""
_SIGNS = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}


@dataclass(slots=True)
class _Group:
    """The aggregate of a group. `last`: round number, timestamp, partition and offset of the last record."""

    totals: list[Any]
    last: tuple[Any, ...] = ()


@dataclass(slots=True)
class Totals:
    """The groups of a topic; `add` all of its records before the table is compared.

    `redriven`: the redrive's round by the place of a record. `records`: the number added; `rows`: the table's. `why`: why it
    cannot be proved; None: it can.
    """

    mode: Aggregate
    claim: Claim
    redriven: Mapping[Key, str] = field(default_factory=dict)
    why: str | None = None
    findings: list[Finding] = field(default_factory=list)
    rows: int = 0
    records: int = 0
    _groups: dict[Group, _Group] = field(default_factory=dict)
    _measures: list[Measure] = field(init=False)
    _redrives: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self._redrives = numbers_of_redrives(self.claim, self.claim.rounds[::-1])
        self._measures = [measure(each.name, each.text) for each in self.mode.measures]

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of records, each of which has a group."""
        paths = {path for each in self._measures for path in each.paths}
        columns = {path: _plain(column_at(batch, path)) for path in (*self.mode.key, *paths)}
        groups = [columns[path] for path in self.mode.key]
        if self.mode.window is not None:
            size = self.mode.window.size_ms * 1000
            groups[-1] = [moment // size * size for moment in groups[-1]]
        kafka = batch.column(SYSTEM_COLUMN)
        places = list(zip(*(_plain(kafka.field(name)) for name in PLACE), strict=True))
        self.records += len(set(places))
        partitions, offsets = kafka.field("partition").to_numpy(), kafka.field("offset").to_numpy()
        read_by = numbers_of(self.claim.rounds[::-1], partitions, offsets).tolist()
        for number, (key, place) in enumerate(zip(zip(*groups, strict=True), places, strict=True)):
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group([each.start for each in self._measures])
            back = self.redriven.get((place[1], place[2]))
            read = read_by[number] if back is None else self._redrives.get(back, read_by[number])
            group.last = max(group.last, (read, *place))
            record = {path: columns[path][number] for path in paths}
            for n, each in enumerate(self._measures):
                group.totals[n] = each.added(group.totals[n], each.value(record))

    def compare(self, main: MainRows, count: Count, *, read: int, whole: bool) -> None:
        """One pass over the table; faults are in `findings` then.

        `read`: claimed records that Kafka still has; `whole`: it has deleted none.
        """
        self.why = _why_unproved(self.claim, None if whole else read)
        wrong = Findings()
        seen: dict[Group, tuple[int, int, list[str]]] = {}
        for file, key, totals, place in self._held(main):
            self.rows += 1
            count(self.rows)
            here = (place[1], place[2], [file])
            for each in (here, seen[key]) if key in seen else ():
                wrong.add(CHECK, "rows with the group of another row", *each)
            seen[key] = here
            if self.why is None:
                self._judge(self._groups.get(key), totals, place, wrong, file)
        if self.why is None:
            for key in self._groups.keys() - seen.keys():
                _, _, partition, offset = self._groups[key].last
                wrong.add(CHECK, "records of groups without a row (the last one of each)", partition, offset)
        self.findings = [*wrong.findings(), *self._totals(read if whole else None)]

    def check(self) -> Check:
        if self.findings:
            return Check(CHECK, "failed", {"groups": self.rows, "records": self.records})
        if self.why is not None:
            return Check(CHECK, "not verifiable", {"groups": self.rows, "why": self.why})
        return Check(CHECK, "proved", {"groups": self.rows, "records": self.records})

    def _judge(
        self, group: _Group | None, totals: Sequence[Any], place: tuple[int, ...], wrong: Findings, file: str
    ) -> None:
        _, partition, offset = place
        if group is None:
            wrong.add(CHECK, "rows of groups without a record", partition, offset, [file])
            return
        pairs = zip(self._measures, totals, group.totals, strict=True)
        differing = [each.name for each, held, found in pairs if not same(held, found)]
        if place != group.last[1:]:
            differing.append(SYSTEM_COLUMN)
        if differing:
            text = "rows that are not the totals of their records"
            wrong.add(CHECK, text, partition, offset, [file], tuple(differing))

    def _held(self, main: MainRows) -> Iterator[tuple[str, Group, tuple[Any, ...], tuple[int, ...]]]:
        """File, group, measures and place of each row."""
        names = [*map(column_of, self.mode.by), *([WINDOW_START] if self.mode.window else [])]
        for file, batch in main.batches():
            groups = zip(*(_plain(batch.column(name)) for name in names), strict=True)
            totals = zip(*(_plain(batch.column(each.name)) for each in self._measures), strict=True)
            kafka = batch.column(SYSTEM_COLUMN)
            places = zip(*(_plain(kafka.field(name)) for name in PLACE), strict=True)
            for group, found, place in zip(groups, totals, places, strict=True):
                yield file, group, found, place

    def _totals(self, read: int | None) -> Iterator[Finding]:
        if not self.claim.known_from_birth:
            return
        counted = self.claim.totals.consumed
        if read is not None and read != counted:
            yield Finding("totals", f"the topic has {read} records, the ledgers say {counted}")
        commits = (*self.claim.rounds, *self.claim.redrives)
        expected = sum(each.ledger.rows_appended - each.ledger.rows_deleted for each in commits)
        if self.rows != expected:
            yield Finding("totals", f"the table has {self.rows} rows, its ledgers say {expected}")


def _why_unproved(claim: Claim, read: int | None) -> str | None:
    """Why these records (None: all) are not those that the aggregates are made of; None: they are."""
    if not claim.known_from_birth:
        return "the snapshots that said where the table begins have expired"
    if claim.mixed:
        return "the topic was created again since"
    if read is not None and read < claim.totals.consumed:
        gone = claim.totals.consumed - read
        return f"Kafka no longer holds {gone} of the records, or it is not known how they were read"
    return None


def _plain(column: Any) -> list[Any]:
    """Python's values; timestamps and dates as numbers, without a calendar's limits."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the table. `term`: what is added up; `paths`: the columns of a record that it needs."""

    name: str
    term: Term
    paths: tuple[str, ...]

    @property
    def start(self) -> Any:
        """The value without records."""
        return 0 if self.term.function == "count" else None

    def value(self, record: Mapping[str, Any]) -> Any:
        """The value of a record, by its columns; may be None."""
        if self.term.of is None:
            return True
        found = _value(self.term.of, record)
        return Decimal(found) if found is not None and self.term.function == "sum" else found

    def added(self, so_far: Any, found: Any) -> Any:
        """The value so far with that of one more record."""
        if found is None or so_far is None:
            return so_far if found is None else found
        match self.term.function:
            case "count":
                return so_far + 1
            case "sum":
                return EXACT.add(so_far, found)
            case "min":
                return min(so_far, found, key=_order)
        return max(so_far, found, key=_order)


def measure(name: str, text: str) -> Measure:
    """The measure in a table's position."""
    term = parse(text)
    return Measure(name, term, tuple(dict.fromkeys(columns_in(term.of) if term.of else ())))


def same(one: Any, other: Any) -> bool:
    """Whether values are equal; nulls and NaN equal themselves."""
    return bool(one == other) or (_is_nan(one) and _is_nan(other))


def _value(node: Expression, record: Mapping[str, Any]) -> Any:
    match node:
        case ColumnAt(path):
            return record[path]
        case Number(text):
            return Decimal(text)
        case Cast(of, kind):
            found, (_, scale) = _value(of, record), decimal_digits(kind) or (0, 0)
            return None if found is None else _rounded(found, scale)
        case Arithmetic(sign, left, right):
            one, other = _value(left, record), _value(right, record)
            return None if one is None or other is None else _SIGNS[sign](Decimal(one), Decimal(other))
    raise AssertionError(node)


def _rounded(found: float | Decimal, scale: int) -> Decimal:
    """Halves away from zero. Of a float, the decimal next to it by float arithmetic: a float's text differs between systems."""
    if not isinstance(found, float):
        return Decimal(found).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
    scaled = found * 10.0**scale
    if not math.isfinite(scaled):
        return Decimal("nan")
    size = abs(scaled)
    below = math.floor(size)
    units = Decimal(below + (size - below >= 0.5))
    return units.copy_sign(Decimal(scaled)).scaleb(-scale, EXACT)


def _order(value: Any) -> tuple[bool, Any]:
    """Spark's: NaN is greater than all numbers."""
    return (True, 0) if _is_nan(value) else (False, value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | Decimal) and math.isnan(value)
