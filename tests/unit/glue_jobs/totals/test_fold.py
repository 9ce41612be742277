"""The fold of totals, against totals that plain Python keeps record by record."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.errors import Suspended
from calve.modes.aggregate import Aggregate, Measure, Window, columns_of, kafka_column
from calve.schema.columns import Json, field, struct
from glue_jobs.columns.arrow_types import leaf_type
from glue_jobs.totals import fold as folding
from glue_jobs.totals.fold import Fold, Gathered, Totals

TYPES = {
    "name": "string",
    "at": "timestamptz",
    "price": "decimal(12, 2)",
    "quantity": "long",
    "weight": "double",
    "note": "binary",
    "_kafka.timestamp": "timestamptz",
    "_kafka.partition": "int",
    "_kafka.offset": "long",
}
RECORD = struct(*(field(name, kind) for name, kind in TYPES.items() if "." not in name))
MEASURES = {
    "records": "count(*)",
    "weights": "count(weight)",
    "quantity": "sum(quantity)",
    "total": "sum(price * quantity)",
    "cast": "sum(cast(price as decimal(38, 30)))",
    "lightest": "min(weight)",
    "heaviest": "max(weight)",
    "note": "max(note)",
    "least": "min(price)",
    "first": "min(_kafka.offset)",
}
SIZE_US = 3_600_000_000
LEAST = -(2**63)


class Record(NamedTuple):
    name: str
    at: int
    price: Decimal | None
    quantity: int | None
    weight: float | None
    note: bytes | None
    timestamp: int
    partition: int
    offset: int

    @property
    def window(self) -> int | None:
        start = self.at // SIZE_US * SIZE_US
        return None if start < LEAST else start


def aggregate(*, windows: bool = True, **measures: str) -> Aggregate:
    found = tuple(Measure(*each) for each in (measures or MEASURES).items())
    return Aggregate(("name",), found, Window("at", SIZE_US // 1000) if windows else None)


def fold_of(mode: Aggregate) -> Fold:
    held = struct(*columns_of(RECORD, mode)["fields"], kafka_column())
    return Fold.of(mode, "t", held, RECORD)


FOLD = fold_of(aggregate())
small, large = st.integers(-1000, 1000), st.sampled_from([0, 1, -1, 2**62, -(2**62), 2**63 - 1, LEAST])
cheap, dear = (st.sampled_from([Decimal("0.01"), Decimal(each)]) for each in ("-999999.99", "9999999999.99"))
floats = st.sampled_from([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan])


@st.composite
def rounds(
    draw: st.DrawFn, quantities: st.SearchStrategy[int], prices: st.SearchStrategy[Decimal]
) -> list[list[list[Record]]]:
    """Rounds of parts of records: few groups and times, in any order."""
    moments = st.sampled_from([0, -1, 1, SIZE_US, -SIZE_US, SIZE_US - 1, 2**63 - 1])
    offsets = [0, 0, 0]
    found = []
    for sizes in draw(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=4)):
        parts = []
        for size in sizes:
            part = []
            for _ in range(size):
                partition = draw(st.integers(0, 2))
                values = (
                    draw(st.sampled_from(["", "a", "é"])),
                    draw(moments),
                    draw(st.none() | prices),
                    draw(st.none() | quantities),
                    draw(st.none() | floats),
                    draw(st.none() | st.sampled_from([b"", b"\x7f", b"\x80", b"\x80\x00"])),
                    draw(st.integers(-1, 2)),
                )
                part.append(Record(*values, partition, offsets[partition]))
                offsets[partition] += 1
            parts.append(draw(st.permutations(part)))
        found.append(draw(st.permutations(parts)))
    return found


class Oracle:
    """Totals, record by record. `lost`: measures that have no exact value."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int | None], list[Record]] = {}
        self.last: dict[tuple[str, int | None], Record] = {}

    def read(self, records: list[Record]) -> set[tuple[str, int | None]]:
        changed: dict[tuple[str, int | None], list[Record]] = {}
        for each in records:
            changed.setdefault((each.name, each.window), []).append(each)
        for group, those in changed.items():
            self.records.setdefault(group, []).extend(those)
            self.last[group] = max(those, key=lambda each: (each.timestamp, each.partition, each.offset))
        return set(changed)

    def totals(self, group: tuple[str, int | None]) -> dict[str, Any]:
        return dict(self._totals(self.records[group]))

    def _totals(self, records: list[Record]) -> Iterator[tuple[str, Any]]:
        def given(name: str) -> list[Any]:
            return [each for record in records if (each := getattr(record, name)) is not None]

        both = [
            Fraction(e.price) * e.quantity for e in records if e.price is not None and e.quantity is not None
        ]
        weights, notes, prices = sorted(given("weight"), key=place_of), given("note"), given("price")
        yield "records", len(records)
        yield "weights", len(weights)
        yield "quantity", summed(given("quantity"), 2**63)
        yield "total", summed(both, 10**36)
        yield "cast", summed([*map(Fraction, prices)], 10**8, each=10**8)
        yield "lightest", weights[0] if weights else None
        yield "heaviest", weights[-1] if weights else None
        yield "note", max(notes, default=None)
        yield "least", min(prices, default=None)
        yield "first", min(given("offset"))


LOST = "lost"


def summed(values: list[Any], limit: int, each: int | None = None) -> Any:
    if not values:
        return None
    total = sum(values)
    is_long = isinstance(total, int)
    fits = -limit <= total < limit if is_long else abs(total) < limit
    if each is not None and any(abs(value) >= each for value in values):
        return LOST
    return total if fits else LOST


def place_of(weight: float) -> tuple[bool, float, float]:
    """NaN is the greatest; the negative zero is less than zero."""
    return math.isnan(weight), 0.0 if math.isnan(weight) else weight, math.copysign(1, weight)


def columns(records: list[Record]) -> dict[str, pa.Array]:
    found = {}
    for path, kind in TYPES.items():
        values = [getattr(each, path.removeprefix("_kafka.")) for each in records]
        found[path] = (
            pa.array(values, pa.int64()).cast(leaf_type(kind))
            if kind == "timestamptz"
            else pa.array(values, leaf_type(kind))
        )
    kafka = {"topic": ("t", pa.string()), "timestamp_type": (0, pa.int32()), "schema_id": (None, pa.int32())}
    return found | {
        f"_kafka.{name}": pa.array([value] * len(records), kind) for name, (value, kind) in kafka.items()
    }


def sent(fold: Fold, part: list[Record]) -> pa.Table:
    """As a task sends them."""
    gathered = Gathered(fold)
    for begin in range(0, len(part), 2):
        gathered.add(columns(part[begin : begin + 2]))
    found = pickle.loads(pickle.dumps(gathered.together()))
    assert isinstance(found, Totals)
    return found.rows


def plain(rows: pa.Table) -> dict[tuple[Any, ...], dict[str, Any]]:
    ordered = rows.set_column(1, "window_start", rows["window_start"].cast(pa.int64()))
    kafka = rows["_kafka"].combine_chunks()
    numbers = [kafka.field("timestamp").cast(pa.int64()), kafka.field("partition"), kafka.field("offset")]
    places = zip(*(each.to_pylist() for each in numbers), strict=True)
    return {
        (row["name"], row["window_start"]): {name: row[name] for name in MEASURES} | {"last": place}
        for row, place in zip(ordered.drop_columns("_kafka").to_pylist(), places, strict=True)
    }


def check(given_rounds: list[list[list[Record]]]) -> None:
    oracle, table = Oracle(), FOLD.rows(FOLD.schema.empty_table())[0]
    for parts in given_rounds:
        changed = oracle.read([each for part in parts for each in part])
        batch = FOLD.together([FOLD.schema.empty_table(), *(sent(FOLD, part) for part in parts)])
        keys = list(
            zip(table["name"].to_pylist(), table["window_start"].cast(pa.int64()).to_pylist(), strict=True)
        )
        is_old = pa.array([each in changed for each in keys], pa.bool_())
        old, kept = table.filter(is_old), table.filter(pa.compute.invert(is_old))
        rows, inexact = FOLD.rows(FOLD.together([batch, FOLD.held(old)]))
        totals = {group: oracle.totals(group) for group in changed}
        lost = {
            name: count
            for name in MEASURES
            if (count := sum(each[name] is LOST or group[1] is None for group, each in totals.items()))
        }
        assert inexact == lost
        if lost:
            return
        last = {group: oracle.last[group] for group in changed}
        expected = {
            group: each | {"last": (last[group].timestamp, last[group].partition, last[group].offset)}
            for group, each in totals.items()
        }
        found = plain(rows)
        assert len(rows) == len(found)
        assert {g: exact(each) for g, each in found.items()} == {
            g: exact(each) for g, each in expected.items()
        }
        assert rows["_kafka"].combine_chunks().field("key").null_count == len(rows)
        table = pa.concat_tables([kept, rows])


def exact(totals: dict[str, Any]) -> str:
    """As text, because NaN is not equal to itself."""
    return repr(
        [(n, Fraction(each) if isinstance(each, Decimal) else each) for n, each in sorted(totals.items())]
    )


@given(rounds(small, cheap))
def test_totals_do_not_depend_on_rounds_and_parts(given_rounds: list[list[list[Record]]]) -> None:
    check(given_rounds)


@given(rounds(large, cheap) | rounds(small, dear))
def test_totals_beyond_their_type_are_found(given_rounds: list[list[list[Record]]]) -> None:
    check(given_rounds)


def test_parts_are_folded_whenever_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "FEW", 4)
    record = Record("a", 0, Decimal(1), 1, None, None, 0, 0, 0)
    check([[[record._replace(name=name, offset=n) for n, name in enumerate("abcabcddaa" * 3)]]])


def record(**values: Any) -> Record:
    return Record("a", 0, None, None, None, None, 0, 0, 0)._replace(**values)


def test_sums_may_leave_their_type_on_the_way() -> None:
    """What counts is the total at the end of a round."""
    parts = [[record(quantity=each, offset=n)] for n, each in enumerate((2**62, 2**62, -(2**62)))]
    rows, inexact = FOLD.rows(FOLD.together([sent(FOLD, each) for each in parts]))
    assert not inexact
    assert rows["quantity"].to_pylist() == [2**62]


def test_sums_beyond_128_bits_are_found() -> None:
    """Four of the greatest decimals wrap around to one that fits."""
    mode = Aggregate(("name",), (Measure("total", "sum(price)"),))
    records = struct(field("name", "string"), field("price", "decimal(38, 0)"))
    fold = Fold.of(mode, "t", struct(*columns_of(records, mode)["fields"], kafka_column()), records)
    given = columns([record(offset=n) for n in range(4)])
    given["price"] = pa.array([Decimal("9" * 38)] * 4, pa.decimal128(38, 0))
    _, inexact = fold.rows(fold.folded(fold.alone(given)))
    assert inexact == {"total": 1}


def test_a_moment_before_the_first_window_loses_every_measure() -> None:
    _, inexact = FOLD.rows(sent(FOLD, [record(at=LEAST), record(at=LEAST + SIZE_US, offset=1)]))
    assert inexact == dict.fromkeys(MEASURES, 1)


def test_a_value_that_an_expression_has_no_room_for_is_found_in_its_group_alone() -> None:
    fold = fold_of(
        aggregate(windows=False, product="sum(quantity * quantity)", n="count(quantity * quantity)")
    )
    those = [record(quantity=2**40), record(quantity=None), record(name="b", quantity=3)]
    _, inexact = fold.rows(sent(fold, those))
    assert inexact == {"product": 1, "n": 1}


def test_a_group_may_be_named_as_a_measure_and_its_function() -> None:
    mode = Aggregate(("total_sum", "id"), (Measure("total", "sum(id)"), Measure("id_max", "max(id)")))
    records = struct(field("total_sum", "string"), field("id", "long"))
    fold = Fold.of(mode, "t", struct(*columns_of(records, mode)["fields"], kafka_column()), records)
    given = {"total_sum": pa.array(["a", "a"]), "id": pa.array([7, 7])}
    place = {path: each for path, each in columns([record(), record(offset=1)]).items() if "_kafka" in path}
    rows, _ = fold.rows(fold.folded(fold.alone(given | place)))
    assert rows.drop_columns("_kafka").to_pylist() == [{"total_sum": "a", "id": 7, "total": 14, "id_max": 7}]


def test_records_whose_measures_do_not_fit_the_table_are_refused() -> None:
    held = struct(*columns_of(RECORD, aggregate())["fields"], kafka_column())
    changed: Json = struct(
        *(field("quantity", "decimal(9, 0)") if e["name"] == "quantity" else e for e in RECORD["fields"])
    )
    with pytest.raises(Suspended, match="quantity") as refused:
        Fold.of(aggregate(), "t", held, changed)
    assert refused.value.code == "measure_changed"
