"""The machine for JSON against the reader of `calve verify`: the same payloads are rows, with the same values."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.decoding.decode_plan import DecodePlan, decoding, first_columns
from calve.decoding.formats import FIELDS, Top
from calve.errors import CalveError
from calve.schema.columns import Json, field, struct
from calve.schema.wire import BARE, CONFLUENT, Schema
from calve.schema.writers import JsonWriter
from cli.verify.formats.fields import MALFORMED
from cli.verify.formats.json_values import JsonWriter as Reference
from glue_jobs.columns import buffers
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.decode.machines.json_reader import reals
from glue_jobs.engines.columnar.decoder import Decoded, Decoder
from tests import database_values
from tests.columnar import plain, records_of
from tests.database_values import FIRST, LAST
from tests.integration.support.records.json_records import EVERY_TYPE, REFUSED, REFUSED_BYTES, ROWS
from tests.random_json import Schemas, partly, payload

ANY: Json = {"type": "object", "properties": {"any": {}, "s": {"type": "string"}}}
REST = Top(rest="rest")


def plan_of(schema: Json, top: Top = FIELDS) -> tuple[DecodePlan, Json]:
    versions = [Schema(0, json.dumps(schema), "JSON")]
    columns = first_columns(versions, "it", top)
    return decoding(columns, versions, wire=BARE, top=top), columns


def read(schema: Json, *values: bytes, top: Top = FIELDS) -> Decoded:
    found, columns = plan_of(schema, top)
    decoded = Decoder(found, columns).decode(records_of(values))
    for each in decoded.columns.columns:
        each.validate(full=True)
    return decoded


def agree(found: DecodePlan, columns: Json, values: list[bytes], whole: str | None = None) -> int:
    """Read both ways; the number of rows. A payload is left out if its last name does not surely decide."""
    decoded = Decoder(found, columns).decode(records_of(values))
    [writer] = found.writers
    assert isinstance(writer, JsonWriter)
    reference, rows = Reference(b"", pa.schema(arrow_type(columns)), writer, whole), {}
    for place, value in enumerate(values):
        try:
            rows[place] = reference.decode(value)
        except (*MALFORMED, RecursionError):
            continue
    ambiguous = {place for place in rows if reference.is_ambiguous(values[place])}
    good = set(decoded.good.tolist())
    assert good <= rows.keys(), values[min(good - rows.keys())]
    assert rows.keys() - good <= ambiguous, values[min(rows.keys() - good - ambiguous)]
    expected = reference.project([rows[place] for place in sorted(good)])
    for each, array in zip(columns["fields"], expected, strict=True):
        got, wanted = plain(decoded.columns[each["name"]]), plain(array)
        assert got == wanted, next((a, b) for a, b in zip(got, wanted, strict=True) if a != b)
    return len(good)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64))
def test_random_payloads_are_what_the_reference_reads(seed: int) -> None:
    random = Random(seed)
    while True:
        schema, make = Schemas(random).top()
        top = random.choice([FIELDS, REST])
        try:
            found, columns = plan_of(partly(schema, random) if top.rest else schema, top)
        except CalveError:
            continue
        if found.writers:
            break
    agree(found, columns, [payload(make(), random) for _ in range(60)])


def test_every_payload_is_its_row_or_refused() -> None:
    values = [*(text.encode() for text, _ in ROWS), *(text.encode() for text in REFUSED), *REFUSED_BYTES]
    assert agree(*plan_of(EVERY_TYPE), values) == len(ROWS)


def test_names_that_are_there_twice_and_undeclared_numbers() -> None:
    """The reference does not look at a value that a later one of its name replaces. The machine does."""
    refused = [
        '{"any":{"a":1,"a":2},"any":1}', '{"any":[{"a":1,"\\u0061":2}]}', '{"any":1e400}', '{"any":[[-1e400]]}',
    ]  # fmt: skip
    values = [
        '{"any":1e400,"any":2}',
        '{"any":"Infinity","zz":1e300}',
        '{"any":3,"any":null}',
        '{"zz":1e400}',
    ]
    found = read(ANY, *(each.encode() for each in (*values, *refused)))
    assert found.good.tolist() == [0, 1, 2, 3]
    assert found.columns["any"].to_pylist() == ["2", '"Infinity"', None, None]
    schema = {"type": "object", "properties": {"o": ANY, "s": {"type": "string"}}}
    refused = [
        '{"zz":1,"\\u007az":1}', '{"zz":1e400}', '{"zz":{"a":1,"a":2}}', '{"o":{"s":"x","s":"y"}}',
        '{"o":{"zz":1,"zz":2}}', '{"o":{"zz":{"a":1,"a":2}},"o":null}', '{"s":{"a":1,"a":2},"s":"x"}',
    ]  # fmt: skip
    values = [
        '{"s":"x","s":"y","o":{"u":1,"t":[2]}}',
        '{"zz":null,"\\u0073":"z","yy":[{"b":1, "a":1e0}]}',
        "{}",
    ]
    found = read(schema, *(each.encode() for each in (*values, *refused)), top=REST)
    assert found.good.tolist() == [0, 1, 2]
    assert found.columns["s"].to_pylist() == ["y", "z", None]
    assert found.columns["rest"].to_pylist() == [None, '{"yy":[{"a":1.0,"b":1}],"zz":null}', None]
    assert agree(*plan_of(schema, REST), [b'{"o":{"zz":1e400}}']) == 1


TEXTS = st.text(st.sampled_from('ab"\\/\n\x00\x1f\x7fé\ud7ff\ue000\uffff\U0001f680'), max_size=3)
FORMS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-9, 9).map(lambda power: 10**power) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=30,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(FORMS, min_size=1, max_size=5), st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_values_of_any_form_have_one_text(values: list[Json], ascii: bool, indent: Json) -> None:
    texts = [json.dumps({"any": each}, ensure_ascii=ascii, indent=indent) for each in values]
    assert agree(*plan_of(ANY), [each.encode() for each in texts]) == len(values)
    assert agree(
        *plan_of(ANY | {"properties": {"s": {"type": "string"}}}, REST), [each.encode() for each in texts]
    )


NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,42}|0\.0{30,42}[0-9]?)|-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,42})?([eE][+-]?[0-9]{1,3})?",
    fullmatch=True,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(NUMBERS | st.floats(allow_nan=False, allow_infinity=False).map(repr), min_size=1))
def test_every_number_has_one_text(numbers: list[str]) -> None:
    agree(*plan_of(ANY), [f'{{"any":{each}}}'.encode() for each in numbers])
    agree(*plan_of(ANY), [f'{{"any":[{",".join(numbers)}]}}'.encode()])


def test_texts_of_any_form_have_room_whatever_they_are() -> None:
    """Each of these takes more room than its value, before it has its place."""
    numbers = ",".join(["1e6"] * 1000)
    values = [
        f'{{"b":[{numbers}],"a":[{numbers}]}}',
        f"[{numbers}]",
        '{"b":1,"a":' * 990 + f"[{numbers}]" + "}" * 990,
        json.dumps({f"{n * 7919 % 5000}": {"\x1f": n, "\n": n} for n in range(5000)}),
    ]
    for each in values:
        assert agree(*plan_of(ANY), [f'{{"any":{each}}}'.encode()]) == 1
        assert agree(*plan_of(ANY, REST), [f'{{"zz":{each},"z":{each}}}'.encode()]) == 1


SCALARS = [
    "1", " 1 ", "null", "-0", "1.0", '"1"', "true", "{}", "[]", '{"k":1}', "", " ", "1 1", "1]", "nul", '"x"', '"a\\u0062"',
    '"\\ud800"', '"\t"', '"x', '"x" "y"', "1x", "NaN", "9223372036854775808",
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        ({"type": "integer"}, 4),
        ({"type": "string"}, 4),
        ({"type": "boolean"}, 2),
        ({"type": "object", "properties": {"k": {"type": "integer"}}}, 2),
    ],
)
def test_one_column_is_the_whole_value(kind: Json, good: int) -> None:
    found, columns = plan_of(kind, Top(column="k"))
    assert agree(found, columns, [each.encode() for each in SCALARS], "k") == good


MEMBERS = [
    '{"payload":{"id":1}}', ' {"schema":{"a":[1]},"payload":{"id":2}} ', '{"payload":null,"payload":{"id":4}}',
    '{"payload":{"id":1},"payload":null}', '{"payload":null}', "{}", "null", '{"payload":[]}',
    '{"payload":{"id":1},"schema":nul}', '{"payload":{"id":1}}}', '{"Payload":{"id":1}}',
    '{"payload":5}', '{"payload":null,"schema":null}', '{"payload":5,"payload":6}', '{"schema":5}',
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "top", "good"),
    [
        ({"type": "struct", "optional": False, "fields": [{"field": "id", "type": "int64"}]}, Top(), 3),
        (
            {"type": "struct", "optional": False, "fields": [{"field": "id", "type": "int64"}]},
            Top(column="k"),
            3,
        ),
        ({"type": "int64", "optional": True}, Top(column="k"), 4),
    ],
)
def test_a_value_is_the_payload_of_a_message(kind: Json, top: Top, good: int) -> None:
    found, columns = plan_of(kind, top)
    assert agree(found, columns, [each.encode() for each in MEMBERS], top.column) == good


def test_of_a_name_that_is_there_twice_the_last_value_counts() -> None:
    item = {
        "type": "object",
        "properties": {"l": {"type": "array", "items": {"type": "string"}}, "n": {"type": "number"}},
    }
    names = {
        "a": {"type": "array", "items": item},
        "m": {"type": "object", "additionalProperties": item},
        "s": {"type": "string"},
    }
    schema = {"type": "object", "properties": names}
    long = "[" + ",".join(['{"l":["x","y"],"l":["z"],"n":1e400,"n":7}'] * 40) + "]"
    values = [
        '{"a":[{"l":["a","b"]},{"l":["c"]}],"a":[{"l":["d"]}],"s":"1"}',
        '{"m":{"x":{"l":["a"]},"y":{"n":1}},"m":null,"a":[{"l":["e"],"l":null}]}',
        '{"m":{"x":{"l":["a"]},"x":{"n":1}},"m":{"y":{"l":["f","g"]}}}',
        f'{{"a":{long},"a":{long},"m":{{"k":{{"n":1e400}}}},"m":{{}}}}',
    ]
    refused = [
        '{"s":1,"s":"x"}',
        '{"s":"x","s":1}',
        '{"m":{"x":null,"x":null}}',
        '{"a":1,"a":[]}',
        '{"a":[],"a":[{"n":1e400}]}',
    ]
    found = read(schema, *(each.encode() for each in (*values, *refused)))
    assert found.good.tolist() == list(range(len(values)))
    again = {"l": [b"z"], "n": "7.0"}
    assert plain(found.columns["a"]) == [
        [{"l": [b"d"], "n": None}],
        [{"l": None, "n": None}],
        None,
        [again] * 40,
    ]
    held = {"l": [b"f", b"g"], "n": None}
    assert plain(found.columns["m"]) == [None, None, [(b"y", held)], []]
    assert plain(found.columns["s"]) == [b"1", None, None, None]


def test_a_value_of_another_kind_refuses_its_record_even_if_it_does_not_count() -> None:
    decimal = {
        "type": "number",
        "title": "org.apache.kafka.connect.data.Decimal",
        "connect.parameters": {"scale": "2"},
    }
    at = {"type": "string", "format": "date-time"}
    schema = {"type": "object", "properties": {"dec": decimal | {"connect.type": "bytes"}, "at": at}}
    values = [
        b'{"dec":true,"dec":1}',
        b'{"dec":{"a":1},"dec":1}',
        b'{"at":1,"at":null}',
        b'{"dec":"","dec":1}',
    ]
    assert read(schema, *values).good.tolist() == [3]


def test_a_number_has_at_most_a_thousand_digits() -> None:
    """Wherever they are: some parsers count a digit less where a fraction or an exponent is missing."""
    schema = {"type": "object", "properties": {"n": {"type": "number"}, "s": {"type": "string"}}}
    digits = [f"1.{'1' * 999}", f"0.{'1' * 999}", f"-1.{'1' * 997}e10", f"1.{'1' * 1000}", f"0.{'1' * 1000}"]
    values = [
        f'{{"s":"{"a" * size}","n":{each},"z":{each}}}'.encode()
        for each in digits
        for size in (0, 3000, 3980)
    ]
    found, columns = plan_of(schema)
    assert Decoder(found, columns).decode(records_of(values)).good.tolist() == list(range(9))
    assert agree(found, columns, values) == 9


def test_names_of_maps_that_are_alike_are_not_the_same() -> None:
    schema = {
        "type": "object",
        "properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}},
    }
    names = [f"name {n}" for n in range(500)]
    many = {"m": {name: n for n, name in enumerate(names)}}
    twice = json.dumps(many)[:-2] + ', "name \\u0037": 1}}'
    found = read(
        schema,
        json.dumps(many).encode(),
        twice.encode(),
        b'{"m":{"a":1,"\\u0061":2}}',
        b'{"m":{"a":1,"aa":2}}',
    )
    assert found.good.tolist() == [0, 3]
    assert [len(each) for each in found.columns["m"].to_pylist()] == [500, 2]


def test_room_for_few_cells_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}},
    }
    random = Random(5)
    rows = [
        {"a": [["é" * random.randrange(4)] * random.randrange(5) for _ in range(random.randrange(6))]}
        for _ in range(300)
    ]
    values = [json.dumps(each).encode() for each in rows]
    values[::7] = [b"{"] * len(values[::7])
    expected = read(schema, *values)
    monkeypatch.setattr(buffers, "ROOM", 40)
    found = read(schema, *values)
    assert found.columns.column(0).num_chunks > expected.columns.column(0).num_chunks
    assert found.good.tolist() == expected.good.tolist() == [n for n in range(300) if n % 7]
    assert found.columns["a"].to_pylist() == [rows[n]["a"] for n in found.good.tolist()]


def test_values_of_databases_are_what_the_reference_reads() -> None:
    found, columns = database_values.json_plan()
    random = Random(7)
    values = [*database_values.payloads(), *(database_values.payload(random) for _ in range(500))]
    values = [each for each in values if b'"ms"' not in each and b'"us"' not in each]
    assert agree(found, columns, values) > len(values) / 4


def test_timestamps_of_databases_keep_the_years_that_a_table_may_have() -> None:
    found, columns = database_values.json_plan()
    texts = [
        b"5",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"9223372036854775808",
        b"253402300799999",
    ]
    decoded = Decoder(found, columns).decode(
        records_of([b'{"ms":%s,"us":%s}' % (each, each) for each in texts])
    )
    assert decoded.good.tolist() == [0, 1, 2, 4]
    assert plain(decoded.columns["ms"]) == [5000, LAST + 1, FIRST - 1000, LAST - 999]
    assert plain(decoded.columns["us"]) == [5, 2**63 - 1, -(2**63), 253_402_300_799_999]


def test_columns_are_wider_than_their_values_or_absent() -> None:
    old = {
        "type": "object",
        "properties": {
            "i": {"type": "integer", "connect.type": "int32"},
            "f": {"type": "number", "connect.type": "float32"},
        },
    }
    new = {
        "type": "object",
        "properties": {"i": {"type": "integer"}, "f": {"type": "number"}, "s": {"type": "string"}},
    }
    versions = [Schema(7 + n, json.dumps(each), "JSON") for n, each in enumerate((old, new))]
    columns = first_columns(versions, "it")
    values = [
        CONFLUENT.frame(7) + b'{"i":1,"f":0.1,"s":"ignored"}',
        CONFLUENT.frame(8) + b'{"i":1099511627776,"f":0.1,"s":"x"}',
    ]
    found = Decoder(decoding(columns, versions), columns).decode(records_of(values))
    single = float(np.float32(0.1))
    assert found.columns.to_pylist() == [{"i": 1, "f": single, "s": None}, {"i": 2**40, "f": 0.1, "s": "x"}]
    assert found.schema_id.to_pylist() == [7, 8]
    less = decoding(columns, versions, fields={"s"})
    rejected = Decoder(less, struct(field("s", "string"))).decode(
        records_of([values[1], CONFLUENT.frame(8) + b'{"i":"x","s":"y"}'])
    )
    assert rejected.columns["s"].to_pylist() == ["x"]
    assert rejected.rejected.tolist() == [1]


@given(st.integers(0, 0x7F7FFFFE), st.sampled_from([-1, 0, 1]))
def test_singles_are_rounded_once(bits: int, beside: int) -> None:
    """Texts at, right below and right above the middle between two singles."""
    below, above = (np.uint32(each).view(np.float32) for each in (bits, bits + 1))
    with localcontext(prec=400):
        middle = (Decimal(float(below)) + Decimal(float(above))) / 2
        text = f"{middle + middle.scaleb(-300) * beside:f}"
    even = below if bits % 2 == 0 else above
    assert reals(pa.array([text]), single=True).tolist() == [{-1: below, 0: even, 1: above}[beside]]


def test_numbers_beyond_singles_are_infinite() -> None:
    middle = 2**128 - 2**103
    found = reals(pa.array([f"{middle - 1}", f"{middle}", f"-{middle}.0", "1e400", "1e-400"]), single=True)
    assert found.tolist() == [float(np.finfo(np.float32).max), np.inf, -np.inf, np.inf, 0.0]
