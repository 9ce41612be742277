"""What a CSV reader reads back is what was in the table."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
from base64 import b64decode
from datetime import UTC
from decimal import Decimal, localcontext
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.publishing import Csv
from lambdas.csv_export.cells import text
from lambdas.csv_export.upload import Content, Writer, joined

PLAIN = Csv()
UTC_ZONE = ZoneInfo("UTC")
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["", "=1+1", "+a", "-1", "@x", "\t", "\r", 'a"b', "a,b", "a;b", "a\r\nb", "\n", "'", "\uff1d1", " x "]
)
SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"
HOSTILE = st.text(st.sampled_from([*SIGNS, *',;|\t\r\n"', "'", "1", "a", "(", " "]), max_size=9)
HARMLESS = re.compile(r"""-?$|[+-][0-9 .()-]*[0-9)]([\]}",]|$)""")
KEEP = Csv(formulas="keep")


def written(columns: dict[str, pa.Array], options: Csv = PLAIN, zone: ZoneInfo = UTC_ZONE) -> bytes:
    batch = pa.record_batch(columns)
    writer = Writer(batch.schema.names, options, zone)
    return writer.header() + bytes(joined(writer.lines(batch)))


def read(data: bytes, delimiter: str = ",") -> list[list[str]]:
    text = io.StringIO(data.decode("utf-8-sig"), newline="")
    return list(csv.reader(text, delimiter=delimiter, strict=True))


@given(
    st.lists(st.tuples(TEXTS | st.none(), TEXTS | st.none()), max_size=8),
    st.sampled_from([",", ";", "\t", "|"]),
    TEXTS,
    st.booleans(),
)
def test_texts_read_back(rows, delimiter: str, name: str, bom: bool) -> None:
    columns = {name: pa.array([a for a, _ in rows], pa.string())}
    columns[f"{name}2"] = pa.array([b for _, b in rows], pa.string())
    data = written(columns, Csv(delimiter=delimiter, bom=bom, formulas="keep"))
    assert data.startswith(b"\xef\xbb\xbf") or not bom
    header, *back = read(data, delimiter)
    assert header == [name, f"{name}2"]
    assert back == [[a or "", b or ""] for a, b in rows]


@given(st.lists(st.tuples(HOSTILE, HOSTILE), max_size=4), *[st.sampled_from(",;\t|")] * 2)
def test_no_cell_is_a_formula_wherever_a_spreadsheet_splits(rows, delimiter: str, other: str) -> None:
    columns = {"k": pa.array(["k"] * len(rows))}
    columns |= {name: pa.array([row[n] for row in rows], pa.string()) for n, name in enumerate("ab")}
    text = written(columns, Csv(delimiter=delimiter)).decode()
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=other):
        for cell in row:
            assert not cell.startswith(tuple(SIGNS)) or HARMLESS.match(cell), (row, text)


@pytest.mark.parametrize(
    ("value", "guarded"),
    [
        ("=1+1", "'=1+1"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("\uff1d1", "'\uff1d1"),
        ("x;=1+1;y", "x;'=1+1;y"),
        ("x,+A1|@y", "x,'+A1|'@y"),
        ("x\r\n=1", "x\r\n'=1"),
        ('x,"=1', "x,\"'=1"),
        ("-1,WEBSERVICE(A1)", "'-1,WEBSERVICE(A1)"),
        ("-1+cmd|' /C calc'!A0", "'-1+cmd|' /C calc'!A0"),
        ("x;-1 (", "x;'-1 ("),
        ("-a", "'-a"),
    ],
)
def test_a_formula_gets_an_apostrophe_unless_texts_are_kept(value: str, guarded: str) -> None:
    columns = {"t": pa.array([value, None]), "n": pa.array([1, 2])}
    assert read(written(columns))[1:] == [[guarded, "1"], ["", "2"]]
    assert read(written(columns, KEEP))[1:] == [[value, "1"], ["", "2"]]


@pytest.mark.parametrize(
    "value",
    [
        "-1.5",
        "-1e-7",
        "+370 600 12345",
        "+1 (555) 123-4567",
        "-",
        "a - b",
        "x,-1,y",
        '["-1",-2]',
        "a=b",
        "1;2",
    ],
)
def test_a_number_or_a_telephone_number_is_no_formula(value: str) -> None:
    assert read(written({"t": pa.array([value]), "n": pa.array([1])}))[1] == [value, "1"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_what_another_separator_would_split_is_quoted(separator: str) -> None:
    data = written({"t": pa.array([f"x{separator}y"]), "n": pa.array([1])}, Csv(delimiter="|"))
    assert data.endswith(f'\r\n"x{separator}y"|1\r\n'.encode())


@given(st.lists(TEXTS | st.none(), max_size=8))
def test_a_null_is_not_an_empty_text(values: list[str | None]) -> None:
    data = written({"a": pa.array(values, pa.string()), "n": pa.array([1] * len(values))})
    if not any("\n" in (value or "") or "\r" in (value or "") for value in values):
        lines = data.decode().split("\r\n")[1:-1]
        assert [line == ",1" for line in lines] == [value is None for value in values]
        assert [line == '"",1' for line in lines] == [value == "" for value in values]


@given(st.lists(st.none() | TEXTS, max_size=8))
def test_a_file_of_one_column_has_no_empty_line(values: list[str | None]) -> None:
    assert len(read(written({"a": pa.array(values, pa.string())}))) == len(values) + 1


@given(st.lists(st.floats() | st.none()))
def test_floats_read_back_exactly(values: list[float | None]) -> None:
    back = [row[0] for row in read(written({"f": pa.array(values, pa.float64())}))[1:]]
    for value, cell in zip(values, back, strict=True):
        same = (
            cell == "" if value is None else (float(cell) == value or (math.isnan(value) and cell == "nan"))
        )
        assert same, (value, cell)


@given(st.integers(1, 76), st.data())
def test_decimals_have_all_their_digits_and_no_exponent(precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, precision))
    numbers = st.integers(-(10**precision) + 1, 10**precision - 1)
    with localcontext(prec=80):
        values = [
            n if n is None else Decimal(n).scaleb(-scale) for n in data.draw(st.lists(numbers | st.none()))
        ]
    kind = pa.decimal128 if precision <= 38 else pa.decimal256
    # Arrow's Python conversion rounds in the context's 28 digits; text does not.
    source = pa.array([None if v is None else f"{v:f}" for v in values], pa.string()).cast(
        kind(precision, scale)
    )
    assert text(source, UTC_ZONE).to_pylist() == [None if v is None else f"{v:f}" for v in values]


@given(
    st.lists(st.datetimes(timezones=st.just(UTC)) | st.none()),
    st.sampled_from(sorted(available_timezones())).map(ZoneInfo),
)
def test_instants_are_what_python_writes_in_the_zone(values, zone: ZoneInfo) -> None:
    expected = []
    for value in values:
        try:
            expected.append(value and value.astimezone(zone).isoformat())
        except OverflowError:
            return
    assert text(pa.array(values, pa.timestamp("us", "UTC")), zone).to_pylist() == expected


def test_numbers_stay_numbers() -> None:
    columns = {"i": pa.array([-1]), "d": pa.array([Decimal("-1.50")]), "b": pa.array([True])}
    assert read(written(columns))[1] == ["-1", "-1.50", "true"]


def test_bytes_are_base64_and_guarded() -> None:
    value = b"\xfb\xff"
    cell = read(written({"y": pa.array([value])}))[1][0]
    assert cell == "'+/8="
    assert b64decode(cell.removeprefix("'")) == value


def test_nested_values_are_json_in_a_fixed_order() -> None:
    kind = pa.struct(
        [("z", pa.int64()), ("a", pa.list_(pa.decimal128(5, 2))), ("m", pa.map_(pa.string(), pa.binary()))]
    )
    values = [{"z": 1, "a": [Decimal("1.10"), None], "m": [("q", b"x"), ("b", None)]}, None]
    cells = [row[0] for row in read(written({"n": pa.array(values, kind), "i": pa.array([1, 2])}))[1:]]
    assert cells == ['{"z":1,"a":["1.10",null],"m":{"b":null,"q":"eA=="}}', ""]
    assert json.loads(cells[0])["a"][0] == "1.10"


@given(st.lists(st.tuples(TEXTS, st.integers(-9, 9)), max_size=30), st.randoms(use_true_random=False))
def test_the_content_does_not_depend_on_the_order_but_on_every_row(rows, chance: random.Random) -> None:
    shuffled = rows.copy()
    chance.shuffle(shuffled)
    assert _content(rows) == _content(shuffled)
    if rows:
        assert _content(rows) != _content(rows[1:])
        assert _content(rows) != _content([*rows[1:], (rows[0][0] + "x", rows[0][1])])


def _content(rows: list[tuple[str, int]]) -> dict:
    content = Content()
    batch = pa.record_batch(
        {"t": pa.array([t for t, _ in rows], pa.string()), "n": pa.array([n for _, n in rows], pa.int64())}
    )
    writer = Writer(["t", "n"], Csv(), UTC_ZONE)
    for start in range(0, len(rows), 7):
        content.add(writer.lines(batch.slice(start, 7)))
    return content.to_json()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_clock_times_carry_no_offset(unit: str) -> None:
    values = pa.array(["2026-11-09T06:00:00"]).cast(pa.timestamp(unit))
    assert text(values, ZoneInfo("Europe/Vilnius")).to_pylist() == ["2026-11-09T06:00:00"]
