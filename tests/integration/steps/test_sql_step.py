"""The steps `sql` and `filter`: rows in, rows out; a failure is a reject; what is no query of one record is refused."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from calve.config.steps import Filter, Sql
from calve.errors import Suspended
from glue_jobs.columns.expressions import FILTERED, REJECT, TOMBSTONE
from glue_jobs.transform.query import run_filter, run_sql
from glue_jobs.transform.row_columns import data
from tests.integration.support.records.frames import by_offset, frame, outcome

TRADE = "side string, quantity int, price int"
WIDE = (
    "id long, name string, price double, amount decimal(20, 2), day date, at timestamp, `order` string, tags array<string>, "
    "item struct<price: double, size: int>, prices map<string, int>"
)
RECORD = (
    7,
    "Ada",
    2.5,
    Decimal("10.25"),
    dt.date(2026, 1, 31),
    dt.datetime(2026, 1, 31, 12, 30, tzinfo=dt.UTC),
    "o-1",
    ["a", "b"],
    (1.5, 2),
    {"a": 1},
)
FLAGS = """
    select *,
        case
            when price < 0 then 'NEGATIVE_PRICE'
            when quantity > 4000 then 'LARGE_TRADE'
            when price > 900 then 'UNUSUAL_PRICE'
            else 'NORMAL'
        end as anomaly_flag
    from source
"""


def sql(rows: DataFrame, query: str) -> DataFrame:
    return run_sql(rows, Sql(query))


def computed(spark: SparkSession, expressions: Iterable[str]) -> list[Any]:
    """The values of expressions on the one record, each for itself; "step_failed" where there is none."""
    record = frame(spark, WIDE, RECORD)
    found = []
    for expression in expressions:
        row = sql(record, f"select {expression} as x from source")
        found.append(row.select(F.coalesce(REJECT, F.col("x").cast("string")).alias("x")))
    return [row["x"] for row in reduce(DataFrame.union, found).collect()]


def refusal(rows: DataFrame, query: str) -> str:
    with pytest.raises(Suspended) as refused:
        sql(rows, query)
    assert refused.value.code == "step_unusable"
    assert refused.value.__cause__ is None
    return refused.value.message


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def test_stock_trades_with_totals(spark: SparkSession) -> None:
    trades = frame(spark, TRADE, ("BUY", 10, 5), ("SELL", 0, 7), ("BUY", None, 7), ("BUY", 5000, 1000))
    totals = sql(trades, "select *, quantity * price as total_price from source")
    assert data(totals) == ["side", "quantity", "price", "total_price"]
    assert totals.schema["total_price"].dataType.simpleString() == "int"
    assert outcome(totals) == [
        ("BUY", 10, 5, 50),
        ("SELL", 0, 7, 0),
        ("BUY", None, 7, None),
        ("BUY", 5000, 1000, 5_000_000),
    ]


def test_flagged_stock_trades_the_first_match_wins_and_comparisons_are_strict(spark: SparkSession) -> None:
    expected = [
        ((4001, -1), "NEGATIVE_PRICE"),
        ((1, -1), "NEGATIVE_PRICE"),
        ((4001, 901), "LARGE_TRADE"),
        ((4001, 0), "LARGE_TRADE"),
        ((4000, 901), "UNUSUAL_PRICE"),
        ((4000, 900), "NORMAL"),
        ((0, 0), "NORMAL"),
        ((None, 901), "UNUSUAL_PRICE"),
        ((4001, None), "LARGE_TRADE"),
        ((None, None), "NORMAL"),
    ]
    flagged = sql(frame(spark, TRADE, *(("BUY", *trade) for trade, _ in expected)), FLAGS)
    assert outcome(flagged) == [("BUY", *trade, flag) for trade, flag in expected]
    unusual = run_filter(flagged, Filter("anomaly_flag <> 'NORMAL'"))
    assert outcome(unusual) == [
        "filtered" if flag == "NORMAL" else ("BUY", *trade, flag) for trade, flag in expected
    ]


def test_where_filters_rows_for_which_it_is_not_true_and_drops_none(spark: SparkSession) -> None:
    trades = frame(spark, TRADE, ("BUY", 1, 1), ("BUY", 0, 1), ("BUY", None, 1))
    assert outcome(sql(trades, "SELECT side AS s FROM source AS t WHERE t.quantity > 0;")) == [
        ("BUY",),
        "filtered",
        "filtered",
    ]
    assert outcome(run_filter(trades, Filter("quantity > 0"))) == [("BUY", 1, 1), "filtered", "filtered"]


def test_a_row_is_rejected_for_what_fails_on_it_and_select_is_computed_where_the_condition_holds(
    spark: SparkSession,
) -> None:
    trades = frame(spark, TRADE, ("7", 1, 1), ("seven", 0, 1), ("seven", 1, 1), ("7", 2**31 - 1, 1))
    query = "select cast(side as int) as side from source where quantity + 1 > 1"
    assert outcome(sql(trades, query)) == [(7,), "filtered", "step_failed", "step_failed"]
    condition = Filter("quantity + 1 > 1")
    assert outcome(run_filter(trades, condition))[1::2] == ["filtered", "step_failed"]


@pytest.mark.parametrize("whole_stage", ["true", "false"])
@pytest.mark.parametrize("factory", ["CODEGEN_ONLY", "NO_CODEGEN"])
def test_what_two_outputs_share_may_fail_in_any_way_that_spark_computes_it(
    spark: SparkSession, whole_stage: str, factory: str
) -> None:
    most = 2**31 - 1
    rows = (("BUY", 2, 3, False), ("BUY", most, 2, False), ("BUY", most, 2, True))
    trades = frame(spark, TRADE, *rows, tombstone="boolean")
    shared = "quantity * price as a, quantity * price + 1 as b, quantity * price + 2 as c"
    more = "nullif(quantity * price, 6) as d, quantity * price between 1 and 9 as e"
    query = f"select side, {shared}, {more} from source"
    with settings(
        spark, **{"spark.sql.codegen.wholeStage": whole_stage, "spark.sql.codegen.factoryMode": factory}
    ):
        good, bad, tombstone = by_offset(sql(trades, query))
        assert [row[REJECT] for row in (good, bad, tombstone)] == [None, "step_failed", None]
        assert tuple(good[name] for name in "abcde") == (6, 7, 8, None, True)
        filtered = sql(trades, f"{query} where quantity * price > 0 and quantity * price < 9")
        assert outcome(filtered)[:2] == [("BUY", 6, 7, 8, None, True), "step_failed"]


def test_rows_that_are_not_live_stay_as_they_are_and_cannot_fail(spark: SparkSession) -> None:
    rows = frame(
        spark,
        TRADE,
        ("x", 0, 0, "malformed", False, False),
        ("x", 0, 0, None, True, False),
        ("x", 0, 0, None, False, True),
        reject="string",
        filtered="boolean",
        tombstone="boolean",
    )
    for step in (
        sql(rows, "select 1 / quantity as x from source where 1 / price > 0"),
        run_filter(rows, Filter("1 / price > 0")),
    ):
        found = [(row[REJECT], row[FILTERED], row[TOMBSTONE]) for row in by_offset(step)]
        assert found == [("malformed", False, False), (None, True, False), (None, False, True)]


def test_a_tombstone_has_every_column_that_can_be_computed_of_its_key(spark: SparkSession) -> None:
    failing = "1 / quantity as x, cast(raise_error(id) as int) as y"
    query = f"select upper(id) as id, id as plain, {failing} from source where quantity > 0"
    rows = frame(spark, "id string, quantity int", ("ada", 0, True), tombstone="boolean")
    (row,) = by_offset(sql(rows, query))
    assert (row["id"], row["plain"], row["x"], row["y"]) == ("ADA", "ada", None, None)
    assert (row[REJECT], row[FILTERED]) == (None, False)


def test_what_is_beside_the_data_is_kept(spark: SparkSession) -> None:
    rows = frame(spark, "id int", (1, 33), size="long").withColumn("calve:filtered", F.lit(False))
    (row,) = by_offset(sql(rows, "select _kafka.offset as place, * except (id) from source"))
    assert row.asDict(recursive=True) == {
        "place": 0,
        "_kafka": {"topic": "trades", "partition": 0, "offset": 0, "key": bytearray(b"key")},
        "calve:size": 33,
        "calve:reject": None,
        "calve:filtered": False,
    }


@pytest.mark.long
def test_values(spark: SparkSession) -> None:
    expected = {
        "`order` || '-' || name": "o-1-Ada",
        "item.price * item.size": "3.0",
        "transform(tags, t -> upper(t))": "[A, B]",
        "prices['a'] + 1": "2",
        "prices['b']": None,
        "tags[1]": "b",
        "amount * amount": "105.0625",
        "amount / 3": "3.416667",
        "hour(at)": "12",
        "date_add(day, 1)": "2026-02-01",
        "at > '2026-01-01'": "true",
        "to_timestamp('31.01.2026', 'dd.MM.yyyy')": "2026-01-31 00:00:00",
        "cast(null as string)": None,
        "'${env:HOME}'": "${env:HOME}",
        "named_struct('a', id, 'b', array(price)).b[0]": "2.5",
        "cast(id as tinyint)": "7",
        "length(sha2(name, 256))": "64",
        "try_divide(id, 0)": None,
        "_kafka.topic": "trades",
    }
    found = computed(spark, expected)
    assert dict(zip(expected, found, strict=True)) == expected


@pytest.mark.long
def test_an_expression_without_a_value_is_a_reject(spark: SparkSession) -> None:
    failing = [
        "id / 0",
        "id % 0",
        "1 / 0",
        "cast(name as int)",
        "cast('x' as int)",
        "id + 9223372036854775807",
        "cast(2147483647 as int) + cast(id as int)",
        "cast(id * 100 as tinyint)",
        "-(id - 7 - 9223372036854775807 - 1)",
        "abs(id - 7 - 9223372036854775807 - 1)",
        "cast(price * 1e30 as long)",
        "cast(amount * 100000 as decimal(5, 2))",
        "cast(amount as decimal(38, 20)) * cast(amount as decimal(38, 20))",
        "tags[2]",
        "element_at(tags, 3)",
        "to_timestamp(name, 'yyyy')",
        "to_date(name)",
        "make_date(2026, 13, cast(id as int))",
        "cast(raise_error(name) as int)",
        "transform(array(id), i -> i / 0)[0]",
    ]
    found = computed(spark, failing)
    assert dict(zip(failing, found, strict=True)) == dict.fromkeys(failing, "step_failed")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select id from trades", '"trades" is an undeclared table'),
        ("select id from lake.trading.source", '"lake, trading, source" is an undeclared table'),
        ("select s.id from source s join source t on s.id = t.id", "a join: use lookup"),
        ("select s.id from source s, source t", "a join: use lookup"),
        ("select id from source union all select id from source", "UNION"),
        ("select id from source except select id from source", "EXCEPT"),
        ("select id from source intersect select id from source", "INTERSECT"),
        ("select id from (select id from source)", "a query in the query"),
        ("select id from source where exists (select 1 from source)", "a query in the query"),
        ("select id from source where id in (select id from source)", "a query in the query"),
        ("select (select max(id) from source) as x from source", "a query in the query"),
        ("with s as (select 1 as id) select id from s", "WITH"),
        ("select id, count(*) as n from source group by id", "GROUP BY"),
        ("select id from source group by id having id > 1", "HAVING"),
        ("select sum(id) as n from source", "an aggregate function"),
        ("select id from source where sum(id) > 1", "invalid where condition"),
        ("select row_number() over (order by id) as n from source", "a window function"),
        ("select sum(id) over w as n from source window w as (order by id)", "WINDOW"),
        ("select distinct id from source", "DISTINCT"),
        ("select id from source order by id", "ORDER BY"),
        ("select id from source limit 3", "LIMIT"),
        ("select id from source offset 3", "OFFSET"),
        ("select id from source tablesample (10 percent)", "TABLESAMPLE"),
        ("select id from source version as of 3", "a version of a table"),
        ("select id from stream source", "STREAM"),
        ("select id from identifier('source')", "IDENTIFIER"),
        ("select id, tag from source lateral view explode(tags) t as tag", "LATERAL VIEW"),
        ("select explode(tags) as tag from source", "use flatten: {explode: ...}"),
        ("select id from range(3)", "a function that makes a table"),
        ("select 1 as x", "no FROM source"),
        ("select /*+ repartition(3) */ id from source", "a hint"),
        ("from source |> where id > 1", "|>"),
        ("select transform(id) using 'cat' as (id) from source", "TRANSFORM ... USING"),
        ("insert into t select id from source", "something else (InsertIntoStatement)"),
        ("create table t as select id from source", "something else (CreateTableAsSelect)"),
        ("drop table source", "something else (DropTable)"),
        ("set spark.sql.ansi.enabled = false", "something else (SetCommand)"),
        ("call lake.system.expire_snapshots('trading.users')", "something else (Call)"),
        ("cache table source", "something else (CacheTable)"),
        ("begin select 1; end", "a query is one SELECT"),
        ("select id from source; select id from source", "syntax error at 'select'"),
        ("selec id from source", "syntax error at 'selec' (line 1, character 1)"),
        ("select id from source\nwhere id ==== 3", "syntax error at '==' (line 2, character 12)"),
        ("select ${id} as id from source", "syntax error at '$'"),
        ("select :id as id from source", "unbound sql parameter: name id"),
        ("select nme from source", '"nme" is no column; did you mean "name"?'),
        ("select `calve:reject` as x from source", '"calve:reject" is no column'),
        ("select item.prize as x from source", '"prize" is no field; there are price, size'),
        ("select id.x from source", "invalid extract base field type"),
        ("select price as p, p + 1 as q from source", "use two sql steps"),
        ("select lake.system.bucket(4, id) as x from source", '"lake.system.bucket" is a function of a catalog'),
        ("select uper(name) as x from source", '"uper" is no function'),
        ("select upper(name, 3) as x from source", "wrong num args"),
        ("select name * item as x from source", '"(name * item)" has types that do not fit: left "STRING"'),
        ("select id from source where name", '"name" is "STRING", and no condition'),
        ("select id + 1 from source", 'column 1 of the query has no name: write "... as name"'),
        ("select *, price + 1 as Price from source", 'makes "price" 2 times; leave the other out by * except (price)'),
        ("select _kafka from source", "_kafka stays by itself"),
        ("select *, id as _Kafka from source", "_kafka stays by itself"),
        ("select *, _kafka from source", "_kafka stays by itself"),
        ("select * except (id, name, price, amount, day, at, `order`, tags, item, prices) from source", "no column"),
        ("select id as `a:b` from source", '"a:b" is not a field path'),
        ("select id as `a.b` from source", '"a.b" has a dot'),
        ("select id as `a b` from source", '"a b" is not a field path'),
        ("select named_struct('a b', id) as x from source", '"x.a b" is not a field path'),
        ("select named_struct('a', id, 'A', id) as x from source", '"x" makes "a" 2 times'),
        ("select null as x from source", '"x" is always null and has no type'),
        ("select array() as x from source", '"x" is always null and has no type'),
        ("select interval 1 day as x from source", "which no table has"),
        ("select at - at as x from source", "which no table has"),
        ("select parse_json(name) as x from source", '"x" is variant, which no table has'),
        ("select time '10:00' as x from source", "which no table has"),
        ("select name collate utf8_lcase as x from source", "a collation"),
        ("select rand() as x from source", "rand gives something else each time"),
        ("select id from source where rand(42) > 0.5", "rand gives something else each time"),
        ("select uuid() as x from source", "uuid gives something else each time"),
        ("select shuffle(tags) as x from source", "shuffle gives something else each time"),
        ("select uniform(1, 9) as x from source", "uniform gives something else each time"),
        ("select randstr(9) as x from source", "rand_str gives something else each time"),
        ("select aes_encrypt(name, '0000111122223333') as x from source", "aes_encrypt gives something else"),
        ("select transform(tags, t -> uuid()) as x from source", "uuid gives something else each time"),
        ("select current_timestamp as x from source", "current_timestamp depends on the moment"),
        ("select now() as x from source", "now depends on the moment"),
        ("select unix_timestamp() as x from source", "current_timestamp depends on the moment"),
        ("select id from source where day < current_date", "current_date depends on the moment"),
        ("select curdate() as x from source", "current_date depends on the moment"),
        ("select localtimestamp() as x from source", "local_timestamp depends on the moment"),
        ("select at < timestamp 'now' as x from source", "timestamp 'now' depends on the moment"),
        ("select date'Today' as x from source", "date'Today' depends on the moment"),
        ("select cast('yesterday' as date) as x from source", "yesterday as a date or timestamp depends on the moment"),
        ("select day < 'tomorrow' as x from source", "tomorrow as a date or timestamp depends on the moment"),
        ("select to_date('today') as x from source", "today as a date or timestamp depends on the moment"),
        ("select cast('10:00' as timestamp) as x from source", "10:00 as a date or timestamp depends on the moment"),
        ("select cast(name as timestamp) as x from source", 'use to_timestamp(text, "format")'),
        ("select to_timestamp(name) as x from source", 'use to_timestamp(text, "format")'),
        ("select cast(tags as array<timestamp>) as x from source", 'use to_timestamp(text, "format")'),
        ("select transform(tags, t -> to_timestamp(t)) as x from source", 'use to_timestamp(text, "format")'),
        ("select variant_get(parse_json(name), '$', 'timestamp') as x from source", 'use to_timestamp(text, "format")'),
        ("select from_csv(name, 'a array<timestamp>') as x from source", 'use to_timestamp(text, "format")'),
        ("select from_json(name, 'a timestamp') as x from source", 'use to_timestamp(text, "format")'),
        ("select current_timezone() as x from source", "current_time_zone depends on where"),
        ("select current_user() as x from source", "current_user depends on where"),
        ("select session_user as x from source", "current_user depends on where"),
        ("select current_database() as x from source", "current_database depends on where"),
        ("select current_catalog() as x from source", "current_catalog depends on where"),
        ("select version() as x from source", "spark_version depends on where"),
        ("select input_file_name() as x from source", "input_file_name depends on where"),
        ("select spark_partition_id() as x from source", "spark_partition_id depends on where"),
        ("select monotonically_increasing_id() as x from source", "depends on where"),
        ("select java_method('java.lang.System', 'getenv', name) as x from source", "may reach what is outside"),
        ("select reflect('java.lang.System', 'getenv', name) as x from source", "may reach what is outside"),
        ("select try_reflect('java.lang.System', 'getenv', name) as x from source", "may reach what is outside"),
        ("select from_avro(_kafka.key, '\"int\"') as x from source", "may reach what is outside"),
        ("select from_xml(name, 'a int') as x from source", "may reach what is outside"),
        ("select xpath_string(name, 'a') as x from source", "cannot be used in a query"),
        ("select repeat(name, cast(id as int)) as x from source", "must be a constant of the query"),
        ("select rpad(name, cast(id as int), 'x') as x from source", "must be a constant of the query"),
        ("select sequence(1, id) as x from source", "must be a constant of the query"),
        ("select array_repeat(name, cast(id as int)) as x from source", "must be a constant of the query"),
        ("select format_string(name) as x from source", "must be a constant of the query"),
        ("select name like `order` as x from source", "must be a constant of the query"),
        ("select name rlike `order` as x from source", "must be a constant of the query"),
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_computed_of_one_record_alone_is_refused(
    spark: SparkSession, query: str, message: str
) -> None:
    assert message in refusal(frame(spark, WIDE, RECORD), query)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("prize > 3", '"prize" is no column; did you mean "price"'),
        ("name", '"name" is "STRING", and no condition'),
        ("price > ", "syntax error at end of input"),
        ("1 = 1) union (select 1", "syntax error"),
        ("id in (select id from source)", "a query in the query"),
        ("rand() > 0.5", "rand gives something else each time"),
        ("day < current_date", "current_date depends on the moment"),
        ("sum(id) > 3", "invalid where condition"),
        ("explode(tags) = 'a'", "use flatten"),
        ("*", "invalid usage of star"),
    ],
)
def test_a_condition_that_cannot_be_computed_of_one_record_alone_is_refused(
    spark: SparkSession, condition: str, message: str
) -> None:
    with pytest.raises(Suspended) as refused:
        run_filter(frame(spark, WIDE, RECORD), Filter(condition))
    assert refused.value.code == "step_unusable"
    assert message in refused.value.message


BY_LENGTH = "the query must limit the length of source.name"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("levenshtein(name, `order`)", "write left(source.order, 100), or less, in its place"),
        (
            "levenshtein(name, `order`, cast(id as int))",
            "write left(source.order, 100), or less, in its place",
        ),
        ("regexp_replace(name, '(a+)+b', '')", "may take endless time: it repeats a group without end"),
        ("name rlike '^(?=a)'", "may take endless time: it has assert"),
        ("name rlike '^a*a*a*a*a*b'", "too many * and + that can end in several places"),
        ("name rlike 'a+b'", "write left(source.name, 4000), or less, in its place"),
        ("regexp_extract(name, '^a*a*b')", BY_LENGTH),
        ("regexp_extract_all(name, 'a+b', 0)", BY_LENGTH),
        ("regexp_count(name, 'a+b')", BY_LENGTH),
        ("regexp_instr(name, 'a+b')", BY_LENGTH),
        ("regexp_substr(name, 'a+b')", BY_LENGTH),
        ("split(name, ' +,')", BY_LENGTH),
        ("str_to_map(name, ' +,', '=')", BY_LENGTH),
        ("name like '%a%b'", BY_LENGTH),
        ("name like any ('a', '%a%b')", BY_LENGTH),
        ("name not ilike '%a%b'", BY_LENGTH),
        ("regexp_replace(name, 'a', `order`)", "left(source.order, 100)"),
        ("replace(name, 'a', `order`)", "left(source.order, 100)"),
        ("contains(name, `order`)", "left(source.order, 100)"),
        ("instr(name, `order`)", "left(source.order, 100)"),
        ("locate(`order`, name)", "left(source.order, 100)"),
        ("split_part(name, `order`, 1)", "left(source.order, 100)"),
        ("substring_index(name, `order`, 1)", "left(source.order, 100)"),
        ("trim(both `order` from name)", "left(source.order, 100)"),
        ("concat_ws(`order`, tags)", "left(source.order, 100)"),
        ("array_join(tags, `order`)", "left(source.order, 100)"),
        ("cast(name as decimal(9, 2))", "write left(source.name, 100), or less, in its place"),
        ("try_cast(name as decimal(9, 2))", "write left(source.name, 100), or less, in its place"),
        ("from_csv(name, 'd decimal(9, 2)').d", "write left(source.name, 100), or less, in its place"),
        ("parse_url(name, 'QUERY', `order`)", "must be a constant of the query"),
        ("parse_url(name, 'QUERY', '(a+)+b')", "may take endless time"),
        ("transform(tags, t -> t || name)", "a lambda computes each item with source.name"),
        (
            "transform(tags, t -> exists(tags, u -> u = t || tags[0]))",
            "a lambda computes each item with source.tags",
        ),
        ("aggregate(tags, '', (a, t) -> a || t)", "use array_join"),
        ("array_distinct(array(item, item))", "compares each item with each other one"),
        ("left(name, 5000) rlike 'a+b'", "the length of"),
    ],
)
def test_an_expression_that_a_long_text_would_keep_busy_is_refused(
    spark: SparkSession, expression: str, message: str
) -> None:
    rows = frame(spark, WIDE, RECORD)
    assert message in refusal(rows, f"select {expression} as x from source")


@pytest.mark.long
def test_the_same_of_short_texts_and_by_patterns_that_take_no_detour(spark: SparkSession) -> None:
    expected = {
        "levenshtein(name, 'Ida')": "1",
        "levenshtein(left(name, 100), `order`)": "3",
        "levenshtein(name, `order`, 9)": "3",
        "regexp_replace(name, '[^A-Z]+', '')": "A",
        "regexp_extract(`order`, '^([a-z]+)-([0-9]+)$', 2)": "1",
        "left(name, 4000) rlike 'd+a'": "true",
        "substr(name, 1, 300) rlike '^a*a*b'": "false",
        "cast(id as string) rlike '0+1'": "false",
        "name like '%d%'": "true",
        "left(name, 100) like '%A%a'": "true",
        "split(`order`, '-')[1]": "1",
        "replace(name, 'A', left(upper(`order`), 1))": "Oda",
        "contains(name, left(`order`, 100))": "false",
        "trim(name)": "Ada",
        "cast(left('7' || name, 1) as decimal(9, 2))": "7.00",
        "concat_ws(',', tags)": "a,b",
        "parse_url('http://h/?a=b', 'QUERY', 'a')": "b",
        "transform(tags, t -> t || left(name, 1))": "[aA, bA]",
        "transform(tags, (t, i) -> i * id + item.size)": "[2, 9]",
        "aggregate(tags, 0, (a, t) -> a + length(t))": "2",
        "array_distinct(tags)": "[a, b]",
        "transform(array(tags), x -> transform(x, y -> upper(y)))[0]": "[A, B]",
    }
    assert dict(zip(expected, computed(spark, expected), strict=True)) == expected


def test_the_session_keeps_its_rules_and_later_steps_theirs(spark: SparkSession) -> None:
    rows = frame(spark, "id int, text string", (2**31 - 1, "x"))
    sql(rows, "select id from source")
    with pytest.raises(Suspended):
        sql(rows, "select none from source")
    assert rows.select(F.expr("id + 1"), F.expr("cast(text as int)")).collect()[0] == (-(2**31), None)
    sessions: Any = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    assert sessions.getActiveSession().get().equals(spark._jsparkSession)
    assert spark.conf.get("spark.sql.ansi.enabled") == "false"


def test_a_step_adds_no_shuffle_no_python_and_no_second_read(spark: SparkSession) -> None:
    rows = frame(spark, TRADE, ("BUY", 1, 1))
    made = sql(
        run_filter(rows, Filter("price > 0")),
        "select *, quantity * price as t from source where side = 'BUY'",
    )
    plan = json.loads(made._jdf.queryExecution().executedPlan().toJSON())
    kinds = [node["class"].rsplit(".", 1)[-1] for node in plan]
    assert set(kinds) <= {
        "WholeStageCodegenExec",
        "ProjectExec",
        "RDDScanExec",
        "InputAdapter",
        "SerializeFromObjectExec",
    }
    assert sum(kind.endswith("ScanExec") for kind in kinds) == 1
