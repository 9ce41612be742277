"""Which fields come in, and what is left of the columns without the others."""

from __future__ import annotations

import json
from typing import Any

from calve.config.steps import Flatten, Mask, Rule, Step, is_masked
from calve.decoding.decode_plan import decoding, first_columns, leaves
from calve.decoding.field_quarantine import admitted, fields_in, only, written
from calve.decoding.field_quarantine import leaves as leaves_of
from calve.decoding.formats import Top
from calve.schema.columns import field, list_of, map_of, struct
from calve.schema.wire import Schema
from calve.schema.writers import AvroWriter
from calve.table.summary import FIELDS

KEEP = Rule("keep")
ITEM = struct(field("sku", "string"), field("price", "double"))
COLUMNS = struct(field("id", "long"), field("items", list_of(ITEM)), field("by", map_of(list_of(ITEM))))


def avro(number: int, *fields: Any) -> Schema:
    return Schema(number, json.dumps({"type": "record", "name": "R", "fields": list(fields)}))


def of(name: str, kind: Any = "string", *aliases: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "aliases": list(aliases)}


def let_in(fields: str, known: str, *steps: Step, own: str = "") -> str:
    every = {path: frozenset({path}) for path in fields.split()}
    return " ".join(sorted(admitted(every, known.split(), steps, own.split())))


def test_fields_without_fields_are_told_by_paths_through_lists_and_maps() -> None:
    assert list(leaves_of(COLUMNS)) == ["id", "items.sku", "items.price", "by.sku", "by.price"]


def test_columns_are_cut_at_every_depth_and_an_empty_struct_is_none() -> None:
    cut = struct(field("items", list_of(struct(field("price", "double")))))
    assert only(COLUMNS, {"items.price"}) == cut
    assert only(COLUMNS, leaves_of(COLUMNS)) == COLUMNS
    assert only(COLUMNS, {"by"}) == struct()


def test_what_the_table_says_is_read_as_it_was_written() -> None:
    assert fields_in(written({"b", "a.c"})) == frozenset({"a.c", "b"})
    assert json.loads(written({"b", "a.c"})[FIELDS]) == ["a.c", "b"]
    assert fields_in({"other": "x"}) is None


def test_a_field_comes_in_that_was_in_or_that_the_mask_names() -> None:
    assert let_in("a b c.d c.e", "a") == "a"
    assert let_in("a b c.d c.e", "a", Mask({"b": Rule("hash"), "c.d": KEEP})) == "a b c.d"
    assert let_in("a b c.d c.e cc", "a", Mask({"c": KEEP})) == "a c.d c.e"
    assert admitted({"a": frozenset({"a"})}, None, ()) == {"a"}


def test_a_tag_decides_nothing() -> None:
    assert let_in("a b", "a", Mask(tags={"PII": Rule("hash")})) == "a"


def test_a_column_that_calve_yaml_adds_comes_in_with_what_it_has_then() -> None:
    assert let_in("a key.id key.x", "a", own="key") == "a key.id key.x"
    assert let_in("a key.id key.x", "a key.id", own="key") == "a key.id"


def test_the_mask_names_fields_as_they_are_where_it_stands() -> None:
    behind = (Flatten(), Mask({"a_b": KEEP, "items.sku": KEEP, "order_items.price": KEEP}))
    assert is_masked(behind, "a.b")
    assert is_masked(behind, "a_b")
    assert is_masked(behind, "order.items.price")
    assert not is_masked(behind, "a_b_c")
    assert not is_masked(behind, "a.bc")
    before = (Mask({"a_b": KEEP}), Flatten())
    assert not is_masked(before, "a.b")
    assert is_masked((Mask(tags={"PII": KEEP}),), "a", ["GDPR", "PII"])
    assert not is_masked((Mask(tags={"PII": KEEP}),), "a", ["GDPR"])
    assert not is_masked((), "a")


def test_a_renamed_field_is_one_that_was_in() -> None:
    inner = {"type": "record", "name": "I", "fields": [of("x"), of("y")]}
    renamed = {"type": "record", "name": "I", "fields": [of("z", "string", "x"), of("y")]}
    versions = [
        avro(1, of("a"), of("s", inner)),
        avro(2, of("b", "string", "a"), of("t", renamed, "s"), of("new")),
    ]
    columns = first_columns(versions, "s")
    assert admitted(leaves(columns, versions), {"a", "s.x"}, ()) == {"b", "t.z"}


def test_an_avro_reader_has_no_field_that_stays_out() -> None:
    inner = {"type": "record", "name": "I", "fields": [of("x"), of("secret")]}
    union = ["string", "long", {"type": "record", "name": "U", "fields": [of("secret")]}]
    version = avro(1, of("a"), of("s", inner), of("secret"), of("u", union))
    columns = first_columns([version], "s")
    fields = leaves_of(columns).keys() - {"s.secret", "secret", "u.U.secret"}
    [writer] = decoding(columns, [version], fields=fields, top=Top()).writers
    assert isinstance(writer, AvroWriter)
    a, s, secret, u = writer.value.parts
    assert [name for name, _ in (a, s, secret, u)] == ["a", "s", None, "u"]
    assert secret[1].skipped
    assert [(name, part.skipped) for name, part in s[1].parts] == [("x", False), (None, True)]
    assert [name for name, _ in u[1].parts] == ["string", "long", None]
