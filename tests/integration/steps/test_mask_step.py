"""What the mask step makes of rows: tokens that anybody with the key can compute, and nothing of what was masked."""

from __future__ import annotations

import hashlib
import hmac
import random
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from calve.config.masking_keys import Key
from calve.config.steps import Mask, Rule
from calve.errors import Suspended
from glue_jobs.columns.tokens import key_frame
from glue_jobs.transform.mask import run_mask

KAFKA = (
    "struct<topic: string, partition: int, offset: bigint, timestamp: timestamp, timestamp_type: int, key: binary,"
    " headers: array<struct<key: string, value: binary>>, schema_id: int>"
)
OLD = Key("2026a", 0, hashlib.sha256(b"old").digest())
NEW = Key("2026b", 1_782_864_000_000_001, hashlib.sha512(b"new").digest() * 2)
TURN = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=NEW.since_us)
SPRING, AUTUMN = datetime(2026, 4, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC)
HASH, DROP, NULL, KEEP = Rule("hash"), Rule("drop"), Rule("null"), Rule("keep")


def token(data: bytes | str, key: Key = OLD) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return f"{key.id}:{hmac.new(key.secret, raw, 'sha256').hexdigest()}"


def kafka(at: datetime | None = SPRING, key: bytes | None = b"k", headers: Any = None) -> tuple[Any, ...]:
    return ("t", 0, 7, at, 0, None if key is None else bytearray(key), headers, 1)


def frame(
    spark: SparkSession, ddl: str, *rows: Sequence[Any], record: tuple[Any, ...] | None = None
) -> DataFrame:
    """Rows of the columns, each with `_kafka`, and a column of calve's own."""
    made = [(*map(_binary, each), record or kafka(), False) for each in rows]
    return spark.createDataFrame(made, f"{ddl}, _kafka {KAFKA}, `calve:filtered` boolean")


def _binary(value: Any) -> Any:
    return bytearray(value) if isinstance(value, bytes) else value


def masked(rows: DataFrame, fields: Mapping[str, Rule], **more: Any) -> DataFrame:
    return run_mask(rows, Mask(dict(fields), **more), lambda _: key_frame(rows.sparkSession, [OLD, NEW]), {})


def values(rows: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of the data columns, or of others, as plain values."""
    names = columns or [name for name in rows.columns if name != "_kafka" and ":" not in name]
    return [tuple(map(_plain, row)) for row in rows.select(*names).collect()]


def _plain(value: Any) -> Any:
    match value:
        case Row():
            return tuple(map(_plain, value))
        case list():
            return list(map(_plain, value))
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case bytearray():
            return bytes(value)
        case datetime():
            return value.replace(tzinfo=UTC)
    return value


def each_masked(
    spark: SparkSession, cases: Sequence[tuple[str, Any, Rule]], *, empty: bool = False
) -> DataFrame:
    """One row with a column for each type, value and rule."""
    ddl = ", ".join(f"c{n} {kind}" for n, (kind, _, _) in enumerate(cases))
    row = [None if empty else value for _, value, _ in cases]
    return masked(frame(spark, ddl, row), {f"c{n}": rule for n, (_, _, rule) in enumerate(cases)})


def test_a_token_is_the_hmac_of_the_value_by_the_key_of_the_records_time(spark: SparkSession) -> None:
    chance = random.Random(7)
    texts = ["", "a", "ä€𝄞", "é", "\0", "x" * 1_000]
    texts += [
        "".join(map(chr, chance.choices(range(1, 0xD800), k=chance.randrange(40)))) for _ in range(5_000)
    ]
    blobs = [b"", b"\xff\x00"] + [chance.randbytes(chance.randrange(200)) for _ in range(5_000)]
    data = list(zip(texts, blobs, strict=False))
    for at, key in ((SPRING, OLD), (AUTUMN, NEW)):
        rows = masked(frame(spark, "x string, y binary", *data, record=kafka(at)), {"x": HASH, "y": HASH})
        assert rows.schema["y"].dataType.simpleString() == "string"
        assert values(rows) == [(token(text, key), token(blob, key)) for text, blob in data]


def test_a_key_counts_from_its_time_on_and_the_first_one_before_it(spark: SparkSession) -> None:
    moments = [datetime(1969, 1, 1, tzinfo=UTC), None, TURN - timedelta(microseconds=1), TURN, AUTUMN]
    rows = spark.createDataFrame([("a", kafka(at)) for at in moments], f"x string, _kafka {KAFKA}")
    found = [one for (one,) in values(masked(rows, {"x": HASH}))]
    assert found == [token("a")] * 3 + [token("a", NEW)] * 2


TEXTS = [
    ("int", -7, "-7"),
    ("bigint", -(2**63), "-9223372036854775808"),
    ("decimal(20, 0)", Decimal(7), "7"),
    ("decimal(20, 0)", Decimal(100), "100"),
    ("decimal(10, 2)", Decimal("7.00"), "7"),
    ("decimal(10, 2)", Decimal("-1200.50"), "-1200.5"),
    ("decimal(38, 38)", Decimal("-0." + "0" * 37 + "1"), "-0." + "0" * 37 + "1"),
    ("decimal(38, 10)", Decimal("0E-10"), "0"),
    ("decimal(38, 0)", Decimal("9" * 38), "9" * 38),
    ("boolean", True, "true"),
    ("date", date(7, 1, 2), "0007-01-02"),
    ("timestamp", datetime(2026, 4, 1, 12, 30, tzinfo=UTC), "2026-04-01T12:30:00.000000Z"),
    ("timestamp_ntz", datetime(2026, 4, 1, 12, 30, 1, 5), "2026-04-01T12:30:01.000005"),  # noqa: DTZ001
]


def test_a_value_has_the_token_of_its_text_whatever_its_type(spark: SparkSession) -> None:
    [found] = values(each_masked(spark, [(kind, value, HASH) for kind, value, _ in TEXTS]))
    assert list(found) == [token(text) for _, _, text in TEXTS]


def test_null_stays_null(spark: SparkSession) -> None:
    rules = [Rule("partial", 4), Rule("partial", "domain"), HASH]
    cases = [("string", None, rule) for rule in rules] + [(kind, None, HASH) for kind, _, _ in TEXTS]
    [found] = values(each_masked(spark, cases))
    assert set(found) == {None}


def test_no_plan_shows_a_key(spark: SparkSession) -> None:
    rows = frame(spark, "x string, y array<string>", ["a", ["b"]])
    found = masked(rows, {"x": HASH, "y": HASH}, headers="hash")
    found.collect()
    plans = found._jdf.queryExecution()
    modes = spark._jvm.org.apache.spark.sql.execution.ExplainMode  # type: ignore[union-attr]
    each_plan = [plans.logical(), plans.analyzed(), plans.optimizedPlan(), plans.sparkPlan()]
    each_plan.append(plans.executedPlan())
    kinds = "simple", "extended", "codegen", "cost", "formatted"
    shown = [each.toString() for each in each_plan] + [each.toJSON() for each in each_plan]
    shown += [plans.toString(), *(plans.explainString(modes.fromString(kind)) for kind in kinds)]
    assert all("calve:masking" in text for text in shown)
    assert not [form for form in _forms() for text in shown if form in text.lower()]


def _forms() -> Iterator[str]:
    """How bytes of the keys, and of the blocks made of them, would be written."""
    for key in (OLD.secret, NEW.secret, hashlib.sha256(NEW.secret).digest()):
        for pad in (0, 0x36, 0x5C):
            start = bytes(each ^ pad for each in key[:18])
            signed = [each - 256 if each > 127 else each for each in start]
            yield from (start.hex(), start.hex(" "), b64encode(start).decode().lower())
            yield from (", ".join(map(str, signed)), ",".join(map(str, signed)))


def test_paths_go_through_structs_lists_and_maps(spark: SparkSession) -> None:
    person = "struct<name: string, mail: string, card: string>"
    ddl = f"id int, a {person}, items array<{person}>, roles map<string, {person}>, mails array<string>, o map<int, int>"
    joe = ("Joe", "joe@x.org", "1234")
    rows = frame(spark, ddl, [1, joe, [joe, None], {"boss": joe}, ["a", None], {1: 2}], [2, *[None] * 5])
    fields = {
        f"{column}.{field}": rule
        for column in ("a", "items", "roles")
        for field, rule in (("mail", HASH), ("card", DROP))
    }
    found = masked(rows, fields | {"mails": HASH, "o": HASH, "a.name": NULL})
    assert found.drop("_kafka").schema.simpleString() == (
        "struct<id:int,a:struct<name:string,mail:string>,items:array<struct<name:string,mail:string>>,"
        "roles:map<string,struct<name:string,mail:string>>,mails:array<string>,o:map<int,string>,calve:filtered:boolean>"
    )
    mail = token("joe@x.org")
    assert values(found) == [
        (
            1,
            (None, mail),
            [("Joe", mail), None],
            {"boss": ("Joe", mail)},
            [token("a"), None],
            {1: token("2")},
        ),
        (2, None, None, None, None, None),
    ]


def test_what_holds_only_dropped_fields_is_dropped_with_them(spark: SparkSession) -> None:
    ddl = (
        "id int, a struct<b: struct<c: int>, d: map<string, array<struct<e: int>>>>, f array<struct<g: int>>"
    )
    found = masked(frame(spark, ddl, [1, None, None]), {"a.b.c": DROP, "a.d.e": DROP, "f.g": DROP})
    assert found.columns == ["id", "_kafka", "calve:filtered"]


def test_null_keeps_the_type_of_whatever_it_empties(spark: SparkSession) -> None:
    ddl = "a struct<b: int, c: array<struct<d: string>>>, e array<int>, f map<string, struct<g: date>>, h struct<i: int>"
    rows = frame(spark, ddl, [(1, [("x",)]), [1], {"x": (date(2026, 1, 1),)}, (1,)])
    found = masked(rows, {"a.c": NULL, "e": NULL, "f.g": NULL, "h": NULL})
    assert found.schema.simpleString() == rows.schema.simpleString()
    assert values(found) == [((1, None), None, {"x": (None,)}, None)]


PARTS: list[tuple[str, Any, int | str, str]] = [
    ("string", "4111111111111234", 4, "************1234"),
    ("string", "12345", 4, "*2345"),
    ("string", "1234", 4, "****"),
    ("string", "", 4, ""),
    ("string", "𝄞𝄞äöü", 2, "***öü"),
    ("bigint", 4915112345, 3, "*******345"),
    ("decimal(20, 0)", Decimal(4915112345), 3, "*******345"),
    ("string", "joe.bloggs@mail.example.com", "domain", "***@mail.example.com"),
    ("string", '"a@b.c"@example.com', "domain", "***@example.com"),
    ("string", "no address", "domain", "***"),
    ("string", "ring me @ 555-1234", "domain", "***"),
    ("string", "ring me @5551234", "domain", "***"),
    ("string", "Joe <joe@example.com>", "domain", "***"),
    ("string", "joe@example.com\n", "domain", "***"),
    ("string", "@" + "a." * 100_000, "domain", "***"),
    ("string", "", "domain", "***"),
]


def test_a_part_is_shown(spark: SparkSession) -> None:
    cases = [(kind, value, Rule("partial", stays)) for kind, value, stays, _ in PARTS]
    [found] = values(each_masked(spark, cases))
    assert list(found) == [shown for *_, shown in PARTS]


SPANS: list[tuple[str, Any, int | str, Any]] = [
    ("date", date(1984, 5, 6), "year", date(1984, 1, 1)),
    ("date", date(1984, 5, 6), "month", date(1984, 5, 1)),
    ("timestamp", datetime(1984, 5, 6, 7, tzinfo=UTC), "month", datetime(1984, 5, 1, tzinfo=UTC)),
    ("timestamp_ntz", datetime(1984, 5, 6, 7), "year", datetime(1984, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
    ("int", 1299, 100, 1200),
    ("int", -1, 100, -100),
    ("int", -100, 100, -100),
    ("int", 7, 10**12, 0),
    ("int", -7, 10**12, None),
    ("int", -(2**31), 100, None),
    ("bigint", -(2**63), 100, None),
    ("bigint", 2**63 - 1, 2**63 - 1, 2**63 - 1),
    ("decimal(10, 2)", Decimal("1299.99"), 100, Decimal("1200.00")),
    ("decimal(10, 2)", Decimal("-0.01"), 100, Decimal("-100.00")),
    ("decimal(38, 0)", Decimal("9" * 38), 10, Decimal("9" * 37 + "0")),
    ("decimal(38, 0)", Decimal("-" + "9" * 38), 10, None),
    ("decimal(2, 2)", Decimal("-0.01"), 100, None),
    ("double", 1299.99, 100, 1200.0),
    ("double", -1e-300, 100, -100.0),
    ("double", 1e300, 100, None),
    ("double", float("nan"), 100, None),
    ("double", float("-inf"), 100, None),
    ("float", 1299.5, 100, 1200.0),
]


def test_a_value_becomes_the_beginning_of_its_span(spark: SparkSession) -> None:
    cases = [(kind, value, Rule("generalise", argument)) for kind, value, argument, _ in SPANS]
    rows = each_masked(spark, cases)
    kinds = [each.dataType.simpleString().replace(",", ", ") for each in rows.schema.fields[: len(SPANS)]]
    assert kinds == [kind for kind, *_ in SPANS]
    assert values(rows) == [tuple(begins for *_, begins in SPANS)]
    assert values(each_masked(spark, cases, empty=True)) == [(None,) * len(SPANS)]


def test_the_first_and_last_moments_are_masked(spark: SparkSession) -> None:
    edges = spark.range(1).selectExpr(
        "timestamp_micros(-9223371158400000000) as a", "timestamp_micros(-9223371158400000001) as b",
        "timestamp_micros(9223372036854775807) as c", "date_from_unix_date(-2147483456) as d",
        "date_from_unix_date(-2147483457) as e", "date_from_unix_date(2147483647) as f",
        "timestamp_micros(-9223372036854775808) as g", "date_from_unix_date(-2147483648) as h",
        f"cast(null as {KAFKA}) as _kafka",
    )  # fmt: skip
    for unit, last in (("month", "+5881580-07-01"), ("year", "+5881580-01-01")):
        spans = masked(edges, dict.fromkeys("abcdefgh", Rule("generalise", unit)))
        assert values(spans.select(*(F.col(each).cast("string").alias(each) for each in "abcdefgh"))) == [
            (
                "-290307-01-01 00:00:00",
                None,
                "+294247-01-01 00:00:00",
                "-5877640-01-01",
                None,
                last,
                None,
                None,
            )
        ]
    [tokens] = values(masked(edges, dict.fromkeys("abcdefgh", HASH)))
    texts = (
        "+294247-01-10T04:00:54.775807Z",
        "+5881580-07-11",
        "-290308-12-21T19:59:05.224192Z",
        "-5877641-06-23",
    )
    assert [tokens[place] for place in (2, 5, 6, 7)] == [token(text) for text in texts]


@pytest.mark.parametrize(
    ("how", "key", "header"),
    [("keep", b"k", b"v"), ("null", None, None), ("hash", token("k").encode(), token("v").encode())],
    ids=["keep", "null", "hash"],
)
def test_the_key_and_the_headers_are_masked_and_the_type_of_kafka_stays(
    how: str, key: bytes | None, header: bytes | None, spark: SparkSession
) -> None:
    record = kafka(headers=[("h", bytearray(b"v")), ("h", None)])
    rows = frame(spark, "x int", [1], record=record).unionAll(
        frame(spark, "x int", [2], record=kafka(key=None))
    )
    found = masked(rows, {}, key=how, headers=how)
    assert found.schema == rows.schema
    begin, end = ("t", 0, 7, SPRING, 0), (1,)
    assert values(found, "_kafka") == [
        ((*begin, key, [("h", header), ("h", None)], *end),),
        ((*begin, None, None, *end),),
    ]


def test_fields_are_masked_by_their_tags(spark: SparkSession) -> None:
    rows = frame(spark, "a struct<b: string, c: string>, d string", [("x", "y"), "z"])
    tags = {"a.b": ("PII",), "a.c": ("PII",), "d": ("SECRET",)}
    step = Mask({"a.c": KEEP}, {"PII": HASH, "SECRET": DROP})
    assert values(run_mask(rows, step, lambda _: key_frame(spark, [OLD]), tags)) == [((token("x"), "y"),)]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"customer.emial": HASH}, r"^no column customer.emial; did you mean customer.email\?"),
        (
            {"customer": HASH},
            "customer has fields: drop and null take it whole, hash needs one of customer.email",
        ),
        ({"items": Rule("partial", 4)}, "items has fields: .* partial needs one of items.sku, items.price"),
        ({"price": HASH}, "price is of type double: its values have no text that is always the same to hash"),
        (
            {"price": Rule("partial", 4)},
            "price is of type double: partial is for texts, whole numbers and decimals",
        ),
        (
            {"price": Rule("generalise", "year")},
            "price is of type double: only dates and timestamps generalise to",
        ),
        (
            {"customer.email": Rule("generalise", 5)},
            "customer.email is of type string: only numbers generalise to",
        ),
    ],
)
def test_what_cannot_be_masked_suspends_the_table(
    fields: dict[str, Rule], why: str, spark: SparkSession
) -> None:
    ddl = "customer struct<email: string>, items array<struct<sku: string, price: double>>, price double"
    with pytest.raises(Suspended, match=why) as caught:
        masked(frame(spark, ddl, [None, None, None]), fields)
    assert caught.value.code == "step_unusable"


def test_a_step_that_only_keeps_changes_nothing_and_needs_no_key(spark: SparkSession) -> None:
    def no_keys(_: str | None) -> DataFrame:
        raise AssertionError("asked for keys")

    rows = frame(spark, "email string, n int", ("a@b.c", 1))
    step = Mask({"email": KEEP}, {"PII": KEEP}, key="keep", headers="keep")
    assert not step.masks
    assert run_mask(rows, step, no_keys, {"n": ("PII",)}).collect() == rows.collect()
    with pytest.raises(Suspended, match="no column mail; did you mean email"):
        run_mask(rows, replace(step, fields={"mail": KEEP}), no_keys, {})
