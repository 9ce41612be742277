"""Queries of steps as verification runs them: plain Spark SQL, of which no trace is left."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from calve.config.steps import Filter, Route, Sql, Step
from calve.errors import CalveError
from calve.schema.change_events import UNAVAILABLE
from calve.schema.columns import CHANGE
from cli.verify.formats.fields import LEFT_OUT, Outcome
from cli.verify.steps.chain import chain_of
from cli.verify.steps.queries import LACKS_VALUE, Queries
from tests.integration.conftest import ROOT

KAFKA = pa.struct([("partition", pa.int32()), ("offset", pa.int64())])
TRADE = pa.schema(
    [("side", pa.large_string()), ("quantity", pa.int32()), ("price", pa.int32()), ("_kafka", KAFKA)]
)


@pytest.fixture(scope="module")
def queries(spark: SparkSession) -> Iterator[Queries]:
    with Queries() as found:
        yield found


def trades(*rows: tuple[str, int | None, int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"side": side, "quantity": quantity, "price": price, "_kafka": {"partition": 0, "offset": n}}
            for n, (side, quantity, price) in enumerate(rows)
        ],
        TRADE,
    )


def told(made: Outcome) -> tuple[list[dict[str, Any]], list[int], list[int]]:
    """Rows with their offset, and the offsets of those that are left out, and on which it fails."""
    rows, lost = made
    found = [row | {"_kafka": row["_kafka"]["offset"]} for row in rows.to_pylist()]
    left_out, failed = (
        [each for each, why in lost.items() if why == wanted] for wanted in (LEFT_OUT, "step_failed")
    )
    assert len(lost) == len(left_out) + len(failed)
    return found, left_out, failed


def test_a_condition_keeps_rows_for_which_it_is_true(queries: Queries) -> None:
    rows = trades(("BUY", 1, 1), ("SELL", 0, 1), ("BUY", None, 1), ("BUY", 2**31 - 1, 1))
    found = told(queries.where(rows, "quantity + 1 > 1 -- and no more", tombstones=False))
    assert found == ([{"side": "BUY", "quantity": 1, "price": 1, "_kafka": 0}], [1, 2], [3])
    assert queries.where(rows, "false", tombstones=True) == (rows, {})


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("select *, quantity * price as total from source", ["_kafka", "side", "quantity", "price", "total"]),
        ("SELECT side AS s, _kafka.offset AS o FROM source AS t WHERE t.quantity > 0;", ["_kafka", "s", "o"]),
        ("-- trades\n/* all */ select all price from source where price > 0 -- some\n", ["_kafka", "price"]),
        ("select * except (_kafka, side) from source", ["_kafka", "quantity", "price"]),
    ],
)
def test_a_query_is_run_as_it_stands_and_rows_keep_their_place(
    queries: Queries, query: str, names: list[str]
) -> None:
    made = queries.select(trades(("BUY", 2, 3), ("BUY", 4, 5)), query, tombstones=False)
    assert made[0].schema.names == names
    assert [row["_kafka"] for row in told(made)[0]] == [0, 1]


def test_rows_on_which_a_query_fails_are_found_among_the_others(queries: Queries) -> None:
    rows = [(str(n), n, 1) for n in range(40)]
    rows[17], rows[23] = ("seventeen", 17, 1), ("23", 2**31 - 1, 1)
    query = "select cast(side as int) as side, quantity + 1 as next from source where quantity <> 5"
    made, left_out, failed = told(queries.select(trades(*rows), query, tombstones=False))
    assert (left_out, failed) == ([5], [17, 23])
    assert [row["side"] for row in made] == [n for n in range(40) if n not in (5, 17, 23)]


def test_of_a_tombstone_each_column_is_there_that_can_be_computed(queries: Queries) -> None:
    rows = trades(("one", None, None), ("2", None, None))
    query = "select side as key, cast(side as int) as n, coalesce(price, 0) as p from source where price > 0"
    made, *_ = told(queries.select(rows, query, tombstones=True))
    assert made == [
        {"key": "one", "n": None, "p": 0, "_kafka": 0},
        {"key": "2", "n": 2, "p": 0, "_kafka": 1},
    ]


def test_every_type_comes_back_as_it_went_in(queries: Queries) -> None:
    ends = [-(2**62), -62135596800000000, 253402300799999999, 2**62, None]
    values: dict[str, pa.Array] = {
        "at": pa.array(ends, pa.timestamp("us", "UTC")),
        "wall": pa.array(ends, pa.timestamp("us")),
        "day": pa.array([-719162, -(2**31), 2**31 - 1, 0, None], pa.date32()),
        "digits": pa.array([None, "1.0001", "-99", "0", "1"], pa.string()).cast(pa.decimal128(38, 4)),
        "raw": pa.array([b"", b"\0\xff", None, b"a", b"b"], pa.large_binary()),
        "pair": pa.array([b"ab"] * 5, pa.binary(2)),
        "float": pa.array([float("inf"), -0.0, None, 0.1, 1e300]),
        "list": pa.array(
            [[{"x": 1}], [], None, [None], [{"x": None}]], pa.large_list(pa.struct([("x", pa.int32())]))
        ),
        "map": pa.array([[("k", 1)], [], None, [("z", None)], []], pa.map_(pa.large_string(), pa.int64())),
        "_kafka": pa.array([{"partition": 0, "offset": n} for n in range(5)], KAFKA),
    }
    rows = pa.RecordBatch.from_pydict(values)
    made, _ = queries.select(rows, "select * from source", tombstones=False)
    assert [made.schema.field(name).type for name in ("at", "wall")] == [
        values["at"].type,
        values["wall"].type,
    ]
    assert made.select(rows.schema.names).cast(rows.schema).equals(rows)


def test_a_query_that_does_not_fit_the_columns_says_so(queries: Queries) -> None:
    with pytest.raises(CalveError, match="UNRESOLVED_COLUMN"):
        queries.select(trades(("BUY", 1, 1)), "select nothing from source", tombstones=False)


def test_a_session_beside_others_leaves_them_as_they_were(
    spark: SparkSession, queries: Queries, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    views = [each.name for each in spark.catalog.listTables() if each.isTemporary]
    before = SparkSession.getActiveSession()
    with caplog.at_level(logging.INFO):
        made = queries.select(
            trades(("secret", 1, 1)), "select cast(side as int) as n from source", tombstones=False
        )
    assert told(made)[2] == [0]
    assert SparkSession.getActiveSession() is before
    assert spark.conf.get("spark.sql.ansi.enabled") == "false"
    assert [each.name for each in spark.catalog.listTables() if each.isTemporary] == views
    assert spark.sql("select cast('x' as int) as n").collect()[0]["n"] is None
    assert "secret" not in caplog.text + "".join(capfd.readouterr())
    spark.catalog.dropTempView("mine")


ALONE = """
import pyarrow as pa
from cli.verify.steps.chain import chain_of
from cli.verify.steps.queries import Queries
from cli.verify.steps.queries import LACKS_VALUE
kafka = pa.array([{"partition": 0, "offset": n} for n in range(2)])
rows = pa.RecordBatch.from_pydict({"a": pa.array(["secret", "7"]), "_kafka": kafka})
with Queries() as queries:
    made, failed = queries.select(rows, "select cast(a as int) as a from source", tombstones=False)
print(made.column("a").to_pylist(), failed)
"""


@pytest.mark.full
def test_a_session_of_its_own_prints_nothing_of_a_record(spark: SparkSession) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "[7] {0: 'step_failed'}\n", done.stderr
    assert "secret" not in done.stderr


CHANGED = pa.schema(
    [
        ("id", pa.int64()),
        ("note", pa.large_string()),
        ("_change", pa.struct([(each["name"], pa.large_string()) for each in CHANGE["type"]["fields"]])),
        ("_kafka", KAFKA),
    ]
)


@pytest.mark.parametrize(
    ("step", "made", "lost"),
    [
        (Filter("note IS NOT NULL"), [1, 3], {0: LACKS_VALUE, 2: LACKS_VALUE}),
        (Filter("id > 0"), [0, 1, 3], {2: LEFT_OUT}),
        (Sql("SELECT id, note FROM source WHERE id > 0"), [0, 1, 3], {2: LEFT_OUT}),
        (
            Sql("SELECT id, upper(note) AS loud FROM source WHERE id > 0"),
            [1, 3],
            {0: LACKS_VALUE, 2: LEFT_OUT},
        ),
        (Sql("SELECT id FROM source WHERE length(note) > 0"), [1, 3], {0: LACKS_VALUE, 2: LACKS_VALUE}),
        (Route("note", ("n",), ("n",), "keep"), [3], {0: LACKS_VALUE, 1: LEFT_OUT, 2: LACKS_VALUE}),
    ],
    ids=str,
)
def test_a_step_that_reads_a_value_that_an_update_lacks_rejects_it(
    queries: Queries, step: Step, made: list[int], lost: dict[int, str]
) -> None:
    """Offset 3 was inserted: there the placeholder is a value."""
    notes = ((1, UNAVAILABLE, "u"), (2, "n", "u"), (0, UNAVAILABLE, "u"), (4, UNAVAILABLE, "c"))
    rows = [
        {"id": id, "note": note, "_change": {"op": op}, "_kafka": {"partition": 0, "offset": n}}
        for n, (id, note, op) in enumerate(notes)
    ]
    found, without = chain_of([step], queries).run(pa.RecordBatch.from_pylist(rows, CHANGED))
    assert [each["offset"] for each in found.column("_kafka").to_pylist()] == made
    assert found.column("_change").field("op").to_pylist() == [notes[each][2] for each in made]
    assert without == lost
