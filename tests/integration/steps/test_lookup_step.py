"""The step `lookup`: columns of another table's row with the same key, and the other table as of its newest snapshot."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from calve.config.spark_conf import CATALOG
from calve.config.steps import Lookup
from calve.errors import Retryable, Suspended
from calve.names import TableName
from glue_jobs.columns.expressions import FILTERED, REJECT
from glue_jobs.transform import lookup
from glue_jobs.transform.lookup import Lookups, require_unique, run_lookup
from glue_jobs.transform.row_columns import data
from tests.integration.support.engine import DATABASE, Engine, suspended
from tests.integration.support.records.frames import by_offset, frame, outcome

RATES = (
    "currency string, day date, rate decimal(10, 4), name string, id long, price double, tags array<string>"
)


def step(on: dict[str, str] | None = None, columns: dict[str, str] | None = None, **changes: Any) -> Lookup:
    return Lookup("trading.rates", on or {"currency": "currency"}, columns or {"rate": "rate"}, **changes)


def rates(spark: SparkSession, *rows: tuple[str | None, str | None]) -> DataFrame:
    return spark.createDataFrame(rows, "currency string, rate string").selectExpr(
        "currency", "cast(null as date) as day", "cast(rate as decimal(10, 4)) as rate"
    )


def test_columns_of_the_row_with_the_same_key_stand_after_the_others(spark: SparkSession) -> None:
    trades = frame(spark, "id int, currency string", (1, "EUR"), (2, "USD"), (3, None), (4, "EUR"))
    found = run_lookup(
        trades, step(columns={"eur": "rate", "of": "day"}), rates(spark, ("EUR", "1"), (None, "2"))
    )
    assert data(found) == ["id", "currency", "eur", "of"]
    assert outcome(found) == [
        (1, "EUR", Decimal(1), None),
        (2, "USD", None, None),
        (3, None, None, None),
        (4, "EUR", Decimal(1), None),
    ]


def test_a_record_without_a_row_is_rejected_where_that_is_asked_for(spark: SparkSession) -> None:
    trades = frame(
        spark,
        "currency string",
        ("EUR", None, False),
        ("USD", None, False),
        (None, None, False),
        ("USD", "malformed", False),
        ("USD", None, True),
        reject="string",
        filtered="boolean",
    )
    found = run_lookup(trades, step(missing="reject"), rates(spark, ("EUR", None), (None, "2")))
    assert [(row[REJECT], row[FILTERED]) for row in by_offset(found)] == [
        (None, False),
        ("lookup_missing", False),
        ("lookup_missing", False),
        ("malformed", False),
        (None, True),
    ]


def test_keys_of_several_columns_deep_in_the_record_and_of_another_width(spark: SparkSession) -> None:
    trades = frame(
        spark,
        "item struct<shop: int, part: decimal(12, 2)>",
        ((1, Decimal("2.50")),),
        ((1, Decimal("2.51")),),
    )
    parts = spark.createDataFrame([(1, Decimal("2.5"), "bolt")], "shop long, part decimal(5, 1), name string")
    by = Lookup("trading.parts", {"item.shop": "SHOP", "item.part": "part"}, {"name": "name"})
    assert [row["name"] for row in by_offset(run_lookup(trades, by, parts))] == ["bolt", None]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (step({"curency": "currency"}), '"curency" is no column of the record; did you mean "currency"?'),
        (step({"item.prize": "price"}), '"prize" is no column of the record; did you mean "price"?'),
        (step({"id.part": "id"}), '"id" has no fields, so there is no "id.part"'),
        (step({"currency": "code"}), '"code" is no column of trading.rates; there are currency'),
        (step(columns={"rate": "rat"}), '"rat" is no column of trading.rates; did you mean "rate"?'),
        (step({"id": "currency"}), '"id" is int and "currency" of trading.rates string'),
        (step({"day": "currency"}), '"day" is timestamp and "currency" of trading.rates string'),
        (step({"day": "day"}), '"day" is timestamp and "day" of trading.rates date'),
        (step({"id": "rate"}), '"id" is int and "rate" of trading.rates decimal(10,4)'),
        (step({"amount": "rate"}), '"amount" is decimal(38,0) and "rate" of trading.rates decimal(10,4)'),
        (step({"item.price": "price"}), "only plain values are keys"),
        (step({"tags": "tags"}), "only plain values are keys"),
        (step(columns={"Currency": "name"}), '"Currency" is a column of the record already'),
        (step(columns={"rate": "rate", "RATE": "rate"}), '"RATE" is a column of the record already'),
        (step(columns={"_kafka": "rate"}), '"_kafka" is reserved'),
    ],
)  # fmt: skip
def test_a_lookup_that_does_not_fit_is_refused(spark: SparkSession, by: Lookup, message: str) -> None:
    schema = "id int, currency string, day timestamp, amount decimal(38, 0), item struct<price: double>, tags array<string>"
    with pytest.raises(Suspended) as refused:
        run_lookup(frame(spark, schema), by, spark.createDataFrame([], RATES))
    assert refused.value.code == "step_unusable"
    assert message in refused.value.message


def test_keys_that_stand_twice_are_refused_by_their_columns_alone(spark: SparkSession) -> None:
    rows = [("EUR", 1), ("EUR", 2), ("USD", 1), (None, 1), (None, 1)]
    table = spark.createDataFrame(rows, "currency string, day int")
    require_unique(table, ["currency", "day"])
    with pytest.raises(Suspended) as refused:
        require_unique(table, ["currency"])
    assert refused.value.code == "lookup_ambiguous"
    assert "currency" in refused.value.message
    assert "EUR" not in str(refused.value)


def test_the_records_are_not_shuffled(spark: SparkSession) -> None:
    found = run_lookup(frame(spark, "currency string", ("EUR",)), step(), rates(spark, ("EUR", "1")))
    plan = json.loads(found._jdf.queryExecution().sparkPlan().toJSON())
    kinds = [node["class"].rsplit(".", 1)[-1] for node in plan]
    assert "BroadcastHashJoinExec" in kinds
    assert not any("Exchange" in kind or "Sort" in kind for kind in kinds)


class Rates:
    """A table of the lake that anybody may have made, and has not written yet."""

    def __init__(self, engine: Engine) -> None:
        self._spark = engine.spark
        self.name = TableName(DATABASE, f"rates_{uuid.uuid4().hex[:8]}")
        self.quoted = self.name.quoted(CATALOG)
        self.step = Lookup(str(self.name), {"currency": "currency"}, {"rate": "rate"})
        self._spark.sql(f"CREATE TABLE {self.quoted} (currency string, rate int, more string) USING iceberg")

    def add(self, currency: str, rate: int) -> None:
        self._spark.sql(f"INSERT INTO {self.quoted} VALUES ('{currency}', {rate}, 'x')")


def in_memory(rows: DataFrame) -> bool:
    return bool(rows.storageLevel.useMemory)


def looked_up(engine: Engine, held: Lookups, by: Lookup) -> list[Any]:
    held.renew()
    trades = frame(engine.spark, "currency string", ("EUR",), ("USD",))
    return [row["rate"] for row in by_offset(run_lookup(trades, by, held.table(by)))]


@pytest.mark.long
def test_the_other_table_is_read_once_for_each_of_its_snapshots(engine: Engine) -> None:
    table, held = Rates(engine), Lookups(engine.lake)
    assert looked_up(engine, held, table.step) == [None, None]
    table.add("EUR", 2)
    assert looked_up(engine, held, table.step) == [2, None]
    first = held.table(table.step)
    assert held.table(table.step) is first
    assert first.columns == ["currency", "rate"]
    assert in_memory(first)
    table.add("USD", 3)
    assert looked_up(engine, held, table.step) == [2, 3]
    assert not in_memory(first)
    assert [row["rate"] for row in first.collect()] == [2]
    table.add("USD", 4)
    held.renew()
    with suspended("lookup_ambiguous"):
        held.table(table.step)
    held.table(Lookup(str(table.name), {"rate": "rate"}, {"currency": "currency"}))


def test_a_table_that_is_not_there_is_waited_for(engine: Engine) -> None:
    by = Lookup(f"{DATABASE}.rates_to_come", {"currency": "currency"}, {"rate": "rate"})
    with pytest.raises(Retryable, match=r"there is no table .*rates_to_come"):
        Lookups(engine.lake).table(by)


@pytest.mark.parametrize("most", ["MOST_ROWS", "MOST_BYTES"])
def test_a_table_that_is_too_large_is_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, most: str
) -> None:
    table = Rates(engine)
    table.add("EUR", 2)
    table.add("USD", 3)
    Lookups(engine.lake).table(table.step)
    monkeypatch.setattr(lookup, most, 1)
    with suspended("step_unusable"):
        Lookups(engine.lake).table(table.step)


def test_columns_that_the_other_table_has_not_are_refused_before_it_is_read(engine: Engine) -> None:
    table = Rates(engine)
    with pytest.raises(Suspended, match=r'"rte" is no column of .*; did you mean "rate"\?'):
        Lookups(engine.lake).table(Lookup(str(table.name), {"currency": "currency"}, {"rate": "rte"}))
