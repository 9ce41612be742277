"""What Protobuf becomes in a table: each row of the table in docs/types.md, and each refusal by its rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calve.decoding.decode_plan import decoding, first_columns, misfit, proposal
from calve.decoding.formats import Top, columns, concerns
from calve.schema.evolution import Rule, SchemaProblem, plain
from calve.schema.protobuf.files import load, message_of
from calve.schema.wire import GLUE, Schema

IMPORTS = "".join(
    f'import "{name}.proto";'
    for name in (
        "google/protobuf/timestamp",
        "google/protobuf/duration",
        "google/protobuf/wrappers",
        "google/protobuf/any",
        "google/protobuf/empty",
        "google/protobuf/struct",
        "google/type/date",
        "google/type/timeofday",
        "confluent/meta",
        "confluent/type/decimal",
    )
)
TYPES = {
    "int32": "int",
    "sint32": "int",
    "sfixed32": "int",
    "uint32": "long",
    "fixed32": "long",
    "int64": "long",
    "sint64": "long",
    "sfixed64": "long",
    "uint64": "decimal(20, 0)",
    "fixed64": "decimal(20, 0)",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
    "Color": "string",
    "google.protobuf.Timestamp": "timestamptz",
    "google.type.Date": "date",
    "confluent.type.Decimal": "decimal(10, 0)",
    "google.protobuf.DoubleValue": "double",
    "google.protobuf.FloatValue": "float",
    "google.protobuf.Int64Value": "long",
    "google.protobuf.UInt64Value": "decimal(20, 0)",
    "google.protobuf.Int32Value": "int",
    "google.protobuf.UInt32Value": "long",
    "google.protobuf.BoolValue": "boolean",
    "google.protobuf.StringValue": "string",
    "google.protobuf.BytesValue": "binary",
    "Inner": "struct<x int>",
    "google.protobuf.Duration": "struct<seconds long, nanos int>",
    "google.type.TimeOfDay": "struct<hours int, minutes int, seconds int, nanos int>",
    "google.protobuf.Any": "struct<type_url string, value binary>",
}


def proto(body: str, *, syntax: str = 'syntax = "proto3";') -> Schema:
    return Schema(1, f"{syntax} {IMPORTS} {body}", "PROTOBUF")


def in_message(fields: str) -> Schema:
    types = "enum Color { NONE = 0; RED = 1; } message Inner { int32 x = 1; }"
    return proto(f"message Top {{ {fields} }} {types}")


def shown(kind: object) -> str:
    """A column type in short."""
    if not isinstance(kind, dict):
        return str(kind)
    match kind["type"]:
        case "struct":
            parts = (f"{each['name']} {shown(each['type'])}" for each in kind["fields"])
            return f"struct<{', '.join(parts)}>"
        case "list":
            return f"list<{shown(kind['element'])}>"
    return f"map<{kind['key']}, {shown(kind['value'])}>"


def of(fields: str) -> str:
    return shown(columns(in_message(fields)))


@pytest.mark.parametrize(("kind", "column"), TYPES.items(), ids=TYPES)
def test_a_field_is_a_column_alone_repeated_in_a_map_and_in_a_oneof(kind: str, column: str) -> None:
    fields = f"{kind} a = 1; repeated {kind} b = 2; map<string, {kind}> c = 3; oneof d {{ {kind} e = 4; bool f = 5; }}"
    parts = [
        f"a {column}",
        f"b list<{column}>",
        f"c map<string, {column}>",
        f"d struct<e {column}, f boolean>",
    ]
    assert of(fields) == f"struct<{', '.join(parts)}>"


@pytest.mark.parametrize(
    "key", [each for each in list(TYPES)[:15] if each not in ("float", "double", "bytes")]
)
def test_every_key_that_protobuf_allows_is_the_key_of_a_map(key: str) -> None:
    assert of(f"map<{key}, bool> a = 1;") == f"struct<a map<{TYPES[key]}, boolean>>"


def test_a_oneof_follows_the_regular_fields_and_a_field_that_is_optional_is_none() -> None:
    fields = "oneof first { int32 a = 1; } int32 b = 2; optional int32 c = 3;"
    assert of(fields) == "struct<b int, c int, first struct<a int>>"


def test_options_give_a_decimal_its_digits_and_a_column_its_comment() -> None:
    params = 'params: [{key: "precision", value: "38"}, {key: "scale" value: "9"}]'
    meta = f'[deprecated = true, (confluent.field_meta) = {{doc: "from" " options" {params}}}]'
    fields = f"""
        // not this: a blank line follows

        // from a
        // comment
        int32 a = 1;
        // replaced
        confluent.type.Decimal b = 2 {meta};
        map<int32, confluent.type.Decimal> c = 3 {meta};"""
    one, other, third = columns(in_message(fields))["fields"]
    assert (one["doc"], other["doc"], other["type"]) == ("from a\ncomment", "from options", "decimal(38, 9)")
    assert third["type"]["value"] == "decimal(38, 9)"


def test_a_message_of_a_known_name_and_other_fields_is_a_struct() -> None:
    own = 'syntax = "proto3"; package google.protobuf; message Timestamp { string text = 1; }'
    text = 'syntax = "proto3"; import "own.proto"; message Top { google.protobuf.Timestamp at = 1; }'
    found = columns(Schema(1, text, "PROTOBUF", {"own.proto": own}))
    assert shown(found) == "struct<at struct<text string>>"


def test_options_of_a_file_that_nobody_gave_change_no_column() -> None:
    text = """syntax = "proto3"; import "buf/validate/validate.proto";
        message Top { int32 a = 1 [(buf.validate.field).int32.gt = 0]; }"""
    assert shown(columns(proto(text))) == "struct<a int>"


def test_the_innermost_type_of_a_name_is_meant() -> None:
    text = """
        package a.b;
        message X { int32 outer = 1; }
        message Top { message X { int32 inner = 1; } X near = 1; .a.b.X far = 2; b.X half = 3; a.b.Top.X whole = 4; }"""
    top = message_of(load(proto(text)), "Top")[1]
    assert [each.type.name for each in top.fields if each.type] == [
        "a.b.Top.X",
        "a.b.X",
        "a.b.X",
        "a.b.Top.X",
    ]


ORDER = "message Order { int32 id = 1; message Line { int32 no = 1; } map<string, int32> tags = 2; }"
PAYMENT = "message Payment { int64 amount = 1; }"


def test_a_table_of_one_message_leaves_the_others_of_its_file_to_other_tables() -> None:
    first, second = replace(proto(ORDER), id=7), replace(proto(ORDER + PAYMENT), id=9)
    top = Top(message="Payment")
    assert [concerns(each, top) for each in (first, second)] == [False, True]
    assert all(concerns(each, Top()) for each in (first, second))
    table = columns(second, top)
    assert [each["name"] for each in table["fields"]] == ["amount"]
    found = decoding(table, [second], [first], top=top, shared=True)
    frame = b"\x00\x00\x00\x00"
    own = frame + b"\x09"
    others = {b"\x00", b"\x04\x00\x00", b"\x04\x00\x02"}
    assert set(found.others) == {frame + b"\x07"} | {own + each for each in others}
    assert found.other_ids == (7, 9)
    assert [(each.prefix, each.others) for each in found.writers] == [(own + b"\x02\x02", {})]  # type: ignore[union-attr]


def test_aws_names_a_message_by_its_place_among_the_sorted_names() -> None:
    """The example of AWS's own `MessageIndexFinder`."""
    nested = "message B { message C { int32 c = 1; } message A { message D { int32 d = 1; } int32 a = 1; } int32 b = 1; }"
    schema = replace(proto(nested), id=1)
    places = {"B": 0, "B.A": 1, "B.A.D": 2, "B.C": 3}
    for name, place in places.items():
        top = Top(message=name)
        (found,) = decoding(columns(schema, top), [schema], wire=GLUE, top=top).writers
        assert found.prefix == GLUE.frame(1) + bytes([place])


@pytest.mark.parametrize("shared", [False, True])
def test_other_messages_of_keys_and_of_tables_that_name_none_are_refused(shared: bool) -> None:
    schema = replace(proto(ORDER + PAYMENT), id=9)
    top = Top() if shared else Top(message="Payment")
    found = decoding(columns(schema, top), [schema], top=top, shared=shared)
    assert found.others == ()
    assert len(found.writers[0].others) == 3  # type: ignore[union-attr]


def test_a_message_is_asked_of_protobuf_alone() -> None:
    with pytest.raises(SchemaProblem, match='names the message "Payment", and this is AVRO'):
        columns(Schema(1, '{"type": "record", "name": "R", "fields": []}', "AVRO"), Top(message="Payment"))
    with pytest.raises(SchemaProblem, match='no message "Payment"'):
        columns(proto(ORDER), Top(message="Payment"))


def test_the_first_message_of_the_file_is_the_table_and_others_are_found_by_name() -> None:
    file = load(
        proto("package p; message A { int32 x = 1; message C { int32 y = 1; } } message B { int32 z = 1; }")
    )
    found = [message_of(file, name) for name in (None, "B", "p.A.C")]
    assert [(path, each.name) for path, each in found] == [((0,), "p.A"), ((1,), "p.B"), ((0, 0), "p.A.C")]
    with pytest.raises(SchemaProblem, match="no message"):
        message_of(file, "D")


REFUSED = {
    "recursive": ("Top top = 1;", "top", Rule.CYCLIC_TYPE),
    "recursive through a list": ("repeated Loop a = 1; message Loop { map<string, Loop> b = 1; }", "a[].b{}", Rule.CYCLIC_TYPE),
    "a free structure": ("google.protobuf.Struct a = 1;", "a.fields{}.kind.struct_value", Rule.CYCLIC_TYPE),
    "empty": ("Nothing a = 1; message Nothing {}", "a", Rule.EMPTY_STRUCT),
    "empty and known": ("google.protobuf.Empty a = 1;", "a", Rule.EMPTY_STRUCT),
    "without fields": ("", "", Rule.EMPTY_STRUCT),
    "two names": ("int32 a = 1; int32 A = 2;", "A", Rule.FIELD_NAME_CASE_COLLISION),
    "a name and a oneof": ("int32 a = 1; oneof A { int32 b = 2; }", "A", Rule.FIELD_NAME_CASE_COLLISION),
    "reserved": ("int32 _kafka = 1;", "_kafka", Rule.FIELD_NAME_RESERVED),
    "not there": ("Missing a = 1;", "a", Rule.UNRESOLVED_TYPE_REF),
    "a number twice": ("int32 a = 1; int32 b = 1;", "b", Rule.UNREADABLE_SCHEMA),
    "no number": ("int32 a = 0;", "a", Rule.UNREADABLE_SCHEMA),
    "no schema": ("int32 a 1;", "", Rule.UNREADABLE_SCHEMA),
    "not closed": ("int32 a = 1; message B {", "", Rule.UNREADABLE_SCHEMA),
    "no character": ("int32 a = 1; \x00", "", Rule.UNREADABLE_SCHEMA),
    "precision": (
        'confluent.type.Decimal a = 1 [(confluent.field_meta).params = {key: "precision", value: "39"}];',
        "a",
        Rule.PRECISION_OUT_OF_RANGE,
    ),
    "scale": (
        'confluent.type.Decimal a = 1 [(confluent.field_meta).params = {key: "scale", value: "11"}];',
        "a",
        Rule.SCALE_OUT_OF_RANGE,
    ),
    "deep": ("".join(f"message M{n} {{ M{n + 1} a = 1; }}" for n in range(40)) + "message M40 { int32 a = 1; } M0 a = 1;",
             ".".join("a" * 32), Rule.NESTED_TOO_DEEP),
    "wide": ("".join(f"int32 f{n} = {n};" for n in range(1, 10_002)), "", Rule.TOO_MANY_FIELDS),
    "wide by use": (
        "message L1 { L2 a=1; L2 b=2; L2 c=3; L2 d=4; L2 e=5; } message L2 { L3 a=1; L3 b=2; L3 c=3; L3 d=4; L3 e=5; }"
        "message L3 { L4 a=1; L4 b=2; L4 c=3; L4 d=4; L4 e=5; } message L4 { L5 a=1; L5 b=2; L5 c=3; L5 d=4; L5 e=5; }"
        "message L5 { L6 a=1; L6 b=2; L6 c=3; L6 d=4; L6 e=5; } message L6 { bool a=1; } L1 a = 1; L1 b = 2; L1 c = 3;",
        "",
        Rule.TOO_MANY_FIELDS,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "path", "rule"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_column_is_refused_by_path_and_rule(fields: str, path: str, rule: Rule) -> None:
    with pytest.raises(SchemaProblem) as caught:
        columns(in_message(fields))
    assert (caught.value.path, caught.value.rule) == (path, rule)


def test_a_group_is_refused_in_the_words_of_both_languages() -> None:
    old = proto("message Top { optional group A = 1 { optional int32 x = 1; } }", syntax='syntax = "proto2";')
    new = proto("option features.message_encoding = DELIMITED; message Top { A a = 1; } message A { int32 x = 1; }",
                syntax='edition = "2023";')  # fmt: skip
    for each in (old, new):
        with pytest.raises(SchemaProblem, match="groups"):
            columns(each)


def version(number: int, body: str) -> Schema:
    return Schema(number, f'syntax = "proto3"; message Top {{ {body} }}', "PROTOBUF")


def names(kind: object) -> list[str]:
    return [each["name"] for each in kind["fields"]]  # type: ignore[index]


def test_a_number_keeps_its_column_under_every_name_it_has_had() -> None:
    versions = [
        version(1, "int32 a = 1; In in = 2; message In { int32 x = 1; }"),
        version(2, "int64 b = 1; In in = 2; message In { int64 y = 1; int32 z = 2; }"),
        version(3, "int64 a = 1; repeated string s = 3; In in = 2; message In { int64 y = 1; }"),
    ]
    table = first_columns(versions, "subject")
    assert shown(table) == "struct<a long, in struct<y long, z int>, s list<string>>"
    plans = [each.plan for each in decoding(table, versions).writers]  # type: ignore[union-attr]
    assert [[column.source is None for column in each.columns] for each in plans] == [
        [False, False, True],
        [False, False, True],
        [False, False, False],
    ]


def test_a_oneof_keeps_its_column_as_long_as_it_keeps_a_member() -> None:
    versions = [
        version(1, "int32 a = 1; oneof one { int32 b = 2; int32 c = 3; }"),
        version(2, "int32 a = 1; oneof other { int32 d = 3; string e = 4; }"),
    ]
    assert shown(first_columns(versions, "subject")) == "struct<a int, other struct<b int, d int, e string>>"


EVOLUTION = {
    "a number of another type": ("int32 a = 1;", "string b = 1;", "b", Rule.UNSUPPORTED_TYPE_CHANGE),
    "exchanged names": ("int32 a = 1; int32 b = 2;", "int32 b = 1; int32 a = 2;", "b", Rule.RENAME_AMBIGUOUS),
    "a name of another number": ("int32 a = 1; int32 b = 2;", "int32 b = 1;", "b", Rule.RENAME_AMBIGUOUS),
    "repeated": ("int32 a = 1;", "repeated int32 a = 1;", "a", Rule.TYPE_MISMATCH),
    "unsigned": ("int64 a = 1;", "uint64 a = 1;", "a", Rule.UNSUPPORTED_TYPE_CHANGE),
    "another key": ("map<int32, bool> a = 1;", "map<int64, bool> a = 1;", "a", Rule.MAP_KEY_TYPE_MISMATCH),
    "a message for a number": (
        "int32 a = 1;",
        "B a = 1; message B { int32 x = 1; }",
        "a",
        Rule.TYPE_MISMATCH,
    ),
}


@pytest.mark.parametrize(("old", "new", "path", "rule"), EVOLUTION.values(), ids=EVOLUTION)
def test_a_version_that_does_not_fit_is_named_by_path_and_rule(
    old: str, new: str, path: str, rule: Rule
) -> None:
    versions = [version(1, old), version(2, new)]
    table = first_columns(versions, "subject")
    assert names(table) == names(plain(columns(versions[0])))
    assert decoding(table, versions).incompatible == (2,)
    problem = misfit(table, versions, 2)
    assert problem is not None
    assert (problem.path, problem.rule) == (path, rule)
    assert proposal(table, versions[:1], versions[1]).problem is not None


def test_wider_numbers_wrappers_and_enums_are_no_change_or_a_wider_column() -> None:
    head = 'syntax = "proto3"; import "google/protobuf/wrappers.proto"; enum E { Z = 0; }'
    old = "int32 a = 1; float b = 2; int64 c = 3; E d = 4; uint32 e = 5;"
    new = "uint32 a = 1; double b = 2; google.protobuf.Int64Value c = 3; string d = 4; int32 e = 5;"
    versions = [
        Schema(n, f"{head} message Top {{ {each} }}", "PROTOBUF") for n, each in enumerate((old, new))
    ]
    table = first_columns(versions, "subject")
    assert shown(table) == "struct<a long, b double, c long, d string, e long>"
    assert len(decoding(table, versions).writers) == 2
