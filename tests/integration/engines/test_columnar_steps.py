"""Steps on columns of Arrow make what those on rows of Spark make: the same rows, rejects and figures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from calve.config.engine_choice import Unsupported
from calve.config.steps import Filter, Flatten, Lookup, Mask, Route, Rule, Sql, Step
from calve.schema.columns import field, list_of, map_of, struct
from tests.integration.steps.test_flatten_step import CUSTOMER, ITEMS
from tests.integration.steps.test_mask_step import AUTUMN, NEW, OLD, PARTS, SPANS, SPRING, TEXTS
from tests.integration.steps.test_sql_step import FLAGS, TRADE
from tests.integration.support.both_engines import KAFKA, planned, same
from tests.integration.support.records.random_expressions import DDL, Expressions, values

KEYS = (OLD, NEW)
HASH, DROP, NULL = Rule("hash"), Rule("drop"), Rule("null")


def records(spark: SparkSession, ddl: str, *values: Sequence[Any]) -> DataFrame:
    """Records with these values, before and after a masking key was replaced."""
    made = [
        (*map(_binary, each), ("t", 0, n, (SPRING, AUTUMN, None)[n % 3], 0, *_received(n), 1))
        for n, each in enumerate(values)
    ]
    return spark.createDataFrame(made, f"{ddl}, _kafka {KAFKA}")


def _binary(value: Any) -> Any:
    return bytearray(value) if isinstance(value, bytes) else value


def _received(n: int) -> tuple[Any, Any]:
    """A key and headers."""
    headers = (None, [], [("h", bytearray(b"v")), ("i", None), ("h", bytearray(b""))])[n % 3]
    return (None, bytearray(b""), bytearray(b"k" * n))[n % 3], headers


@pytest.mark.parametrize(
    "route",
    [
        Route("type", ("order",), (), "leave_out"),
        Route("type", (), ("order", "payment"), "keep"),
        Route("type", ("order",), ("order", "payment"), "reject"),
        Route("Head.OF", (2**62, -1, 0), (2**62, -1, 0, 5), "reject"),
        Route("small", (2, 2**40, -(2**31)), (2, 2**40), "reject"),
        Route("flag", (False,), (), "leave_out"),
    ],
)
def test_records_are_routed(spark: SparkSession, route: Route) -> None:
    rows = records(
        spark,
        "type string, head struct<of: long>, small int, flag boolean",
        ("order", (2**62,), 2, True),
        ("payment", (-1,), -(2**31), False),
        ("Order", (7,), 2**31 - 1, None),
        ("order ", None, None, True),
        (None, (None,), 2, False),
        ("order", (5,), 0, False),
    )
    assert same(rows, (route,)).rows


ORDER = (
    "id int, customer struct<name: string, address: struct<city: string, zip: string>>,"
    " items array<struct<sku: string, price: double, maker: struct<name: string>>>, labels map<string, string>"
)
LABELS = {"color": "red", "size": "xl"}
ORDERS: tuple[tuple[Any, ...], ...] = (
    (1, CUSTOMER, ITEMS, LABELS),
    (2, None, [], {}),
    (3, {"name": "Bob", "address": None}, None, None),
    (4, CUSTOMER, [None], {"size": None}),
    (5, CUSTOMER, ITEMS * 3, {"weight": "1", "a": "b"}),
)
MAPS: dict[str, tuple[str, ...]] = {"labels": ("size", "weight")}


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (Flatten(),),
        (Flatten("__", maps=MAPS),),
        (Flatten(explode="items"),),
        (Filter("id <> 3"), Flatten(explode="items", maps=MAPS), Filter("items_price > 1 and id < 5")),
        (Flatten(explode="items"), Sql("select id, items_price / (id - 1) as p from source where id < 5")),
        (Flatten(explode="items"), Mask({"items_sku": HASH, "customer_name": DROP})),
        (Mask({"items.sku": HASH, "labels": HASH}), Flatten(explode="items")),
    ],
)
def test_structs_lists_and_maps_become_columns(spark: SparkSession, steps: tuple[Step, ...]) -> None:
    assert same(records(spark, ORDER, *ORDERS), steps, KEYS).rows


def test_a_list_of_plain_values_makes_rows(spark: SparkSession) -> None:
    rows = records(
        spark,
        "n array<int>, o struct<m: array<struct<t: map<string, int>>>>",
        ([3, None], ([({"a": 1, "b": 2},), ({},), None],)),
        (None, None),
    )
    same(rows, (Flatten(explode="n"),))
    same(rows, (Flatten(explode="o.m", maps={"o.m.t": ("a",)}),))


@pytest.mark.long
def test_no_records(spark: SparkSession) -> None:
    steps: tuple[Step, ...] = (
        Route("id", (1,), (), "leave_out"),
        Mask({"customer.name": HASH}),
        Flatten(maps=MAPS),
    )
    for each in (
        steps,
        (*steps, Filter("id > 2")),
        (*steps, Flatten(explode="items"), Sql("select id + 1 as id from source")),
    ):
        same(records(spark, ORDER), each, KEYS)


MASKED = [
    *((kind, value, HASH) for kind, value, _ in TEXTS),
    *((kind, value, Rule("partial", stays)) for kind, value, stays, _ in PARTS),
    *(
        (kind, value, Rule("generalise", to))
        for kind, value, to, _ in SPANS
        if not kind.startswith("decimal(38")
    ),
    ("string", "x", NULL),
    ("binary", b"\xff\x00", HASH),
]


@pytest.mark.long
def test_values_are_masked(spark: SparkSession) -> None:
    ddl = ", ".join(f"c{n} {kind}" for n, (kind, _, _) in enumerate(MASKED))
    rows = records(spark, ddl, *([value for _, value, _ in MASKED], [None] * len(MASKED)) * 3)
    fields = {f"c{n}": rule for n, (_, _, rule) in enumerate(MASKED)}
    same(rows, (Mask(fields, key="hash", headers="hash"),), KEYS)
    same(rows, (Mask(fields, key="null", headers="keep"),), KEYS)


def test_what_is_inside_is_masked(spark: SparkSession) -> None:
    person = "struct<name: string, mail: string, card: string>"
    ddl = f"id int, a {person}, items array<{person}>, roles map<string, {person}>, mails array<string>, o map<int, int>"
    joe = ("Joe", "joe@x.org", "1234")
    rows = records(
        spark,
        ddl,
        [1, joe, [joe, None], {"boss": joe, "b": None}, ["a", None], {1: 2}],
        [2, *[None] * 5],
        [3, None, [], {}, [], {}],
    )
    fields = {
        f"{column}.{field}": rule
        for column in ("a", "items", "roles")
        for field, rule in (("mail", HASH), ("card", DROP), ("name", Rule("partial", 1)))
    }
    same(rows, (Mask(fields | {"mails": HASH, "o": HASH}),), KEYS)
    gone = {"a.mail": DROP, "a.name": DROP, "a.card": DROP, "items": NULL}
    same(rows, (Mask(gone, {"PII": HASH}),), KEYS, tags={"mails": ("PII",)})


def test_rows_are_those_of_a_wider_table(spark: SparkSession) -> None:
    wide = struct(
        field("more", "string"),
        field("n", "long"),
        field("d", "decimal(20, 2)"),
        field("s", struct(field("y", "date"), field("x", "double"))),
        field("l", list_of("long")),
        field("m", map_of("double")),
    )
    rows = records(
        spark,
        "n int, d decimal(10, 2), s struct<x: float>, l array<int>, m map<string, float>",
        (1, Decimal("1.50"), (0.1,), [1, None], {"a": 0.1, "b": None}),
        (None, None, None, None, None),
    )
    same(rows, (Filter("n is null or n = 1"),), columns=wide)


def test_trades_are_flagged(spark: SparkSession) -> None:
    values = [
        (4001, -1),
        (1, -1),
        (4001, 901),
        (4000, 901),
        (4000, 900),
        (None, 901),
        (4001, None),
        (None, None),
        (2**31 - 1, 2),
    ]
    trades = records(spark, TRADE, *(("BUY", *each) for each in values))
    found = same(trades, (Sql(FLAGS), Filter("anomaly_flag <> 'NORMAL'")))
    assert found.left_out == 2
    totals = same(trades, (Sql("select *, quantity * price as total from source"),))
    assert totals.rejected == (8,)


SEEDS = [pytest.param(seed, marks=pytest.mark.long if seed < 2 else pytest.mark.full) for seed in range(40)]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_expressions_have_the_same_values(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    rows = records(spark, DDL, *(values(chance) for _ in range(1_000)))
    made = Expressions(chance)
    kinds = ("int", "long", "double", "float", "string", "decimal", "date", "timestamp")
    columns = [made.value(chance.choice(kinds)) for _ in range(15)] + [made.condition() for _ in range(15)]
    kept = [each for each in columns if _is_columnar(rows, each)]
    assert len(kept) * 3 > len(columns) * 2
    listed = ", ".join(f"{each} as c{n}" for n, each in enumerate(kept))
    condition = next(each for each in iter(made.condition, None) if _is_columnar(rows, each))
    assert not same(rows, (Sql(f"select {listed}, * from source where {condition}"),)).rejected


def _is_columnar(rows: DataFrame, expression: str) -> bool:
    """Spark casts one side of a comparison to the other's type, also to one that cannot have all its values."""
    try:
        planned(rows, (Sql(f"select {expression} as found from source"),))
    except Unsupported:
        return False
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_random_expressions_fail_for_the_same_records(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    rows = records(spark, DDL, *(values(chance) for _ in range(1_000)))
    made = Expressions(chance)
    columns = [made.failing() for _ in range(3)]
    listed = ", ".join(f"{each} as c{n}" for n, each in enumerate(columns))
    same(rows, (Sql(f"select {listed}, a, d from source where {made.failing_condition()}"),))
    same(rows, (Filter(made.failing_condition()),))


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Filter("upper(s) = 'A'"), "steps[0].filter: upper needs the row engine"),
        (Filter("a + b > 1 and true"), "and needs the row engine"),
        (Filter("a + b = a + b"), "needs the row engine"),
        (Filter("a + 1 + b + 2 > 1"), "needs the row engine"),
        (Filter("coalesce(a + b, 1) > 1"), "coalesce needs the row engine"),
        (Filter("try_add(a + b, b) > 1"), "needs the row engine"),
        (Filter("s like 'a_'"), "like needs the row engine"),
        (Filter("a > 1 / 0"), "fails for every record"),
        (Sql("select cast(s as int) as i from source"), "steps[0].sql: cast needs the row engine"),
        (Sql("select k * cast(q as decimal(38, 3)) as i from source"), "needs the row engine"),
        (Lookup("t", {"a": "a"}, {"z": "z"}), "steps[0].lookup needs the row engine"),
        (Mask({"w": Rule("generalise", 10)}), "steps[0].mask: w generalises decimals of more than 18 digits"),
    ],
)
def test_what_may_come_out_otherwise_is_refused(spark: SparkSession, step: Step, why: str) -> None:
    with pytest.raises(Unsupported) as refused:
        planned(records(spark, f"{DDL}, w decimal(20, 2)"), (step,))
    assert why in refused.value.message
