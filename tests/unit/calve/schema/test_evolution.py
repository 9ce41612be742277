"""The law of evolution: its named cases, each at every depth. A column may be in the table, in a struct, in a list, in a map."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calve.schema.columns import field, list_of, map_of, struct
from calve.schema.evolution import Change, Rule, SchemaProblem, apply, changes, widens

Json = Any
Depth = tuple[Callable[[Json], Json], tuple[str, ...], str]
DEPTHS: dict[str, Depth] = {
    "column": (lambda inner: inner, (), ""),
    "struct": (lambda inner: struct(field("s", inner)), ("s",), "s."),
    "list": (lambda inner: struct(field("l", list_of(inner))), ("l", "element"), "l[]."),
    "map": (lambda inner: struct(field("m", map_of(inner))), ("m", "value"), "m{}."),
    "deep": (
        lambda inner: struct(field("l", list_of(map_of(struct(field("s", inner)))))),
        ("l", "element", "value", "s"),
        "l[]{}.s.",
    ),
}
WIDENED = [
    ("int", "long"),
    ("float", "double"),
    ("decimal(9, 2)", "decimal(12, 2)"),
    ("decimal(1, 0)", "decimal(38, 0)"),
]
UNSUPPORTED = [
    ("int", "string"),
    ("string", "int"),
    ("int", "float"),
    ("long", "double"),
    ("int", "boolean"),
    ("date", "timestamp"),
    ("timestamp", "timestamptz"),
    ("timestamptz", "long"),
    ("string", "binary"),
    ("fixed[4]", "fixed[8]"),
    ("fixed[4]", "binary"),
    ("decimal(9, 2)", "decimal(12, 3)"),
    ("decimal(9, 2)", "decimal(8, 3)"),
    ("int", "decimal(10, 0)"),
]
STRUCT = struct(field("x", "int"))
MISMATCHED = [
    (STRUCT, "int"),
    ("int", STRUCT),
    (list_of("int"), "int"),
    (list_of("int"), map_of("int")),
    (map_of("int"), list_of("int")),
    (STRUCT, map_of("int")),
    (list_of(STRUCT), STRUCT),
]


@pytest.fixture(params=DEPTHS.values(), ids=list(DEPTHS))
def depth(request: pytest.FixtureRequest) -> Depth:
    return request.param  # type: ignore[no-any-return]


def of(depth: Depth, *kinds: Json) -> list[Json]:
    """Tables with a column `c` of each type, and one beside it that never changes."""
    wrap, _, _ = depth
    return [wrap(struct(field("other", "string"), field("c", kind))) for kind in kinds]


def test_an_optional_column_is_added_anywhere(depth: Depth) -> None:
    wrap, parent, where = depth
    before = wrap(struct(field("b", "int")))
    after = wrap(struct(field("a", STRUCT), field("b", "int"), field("c", "string", doc="the c")))
    wanted = changes(before, after)
    assert wanted == [Change("add", parent, "a", STRUCT), Change("add", parent, "c", "string", "the c")]
    assert [each.where for each in wanted] == [f"{where}a", f"{where}c"]
    assert changes(apply(before, wanted), after) == []


@pytest.mark.parametrize(("narrow", "wide"), WIDENED)
def test_a_type_is_widened_at_any_depth(depth: Depth, narrow: str, wide: str) -> None:
    before, after = of(depth, narrow, wide)
    wanted = changes(before, after)
    assert wanted == [Change("widen", depth[1], "c", wide)]
    assert apply(before, wanted) == after


@pytest.mark.parametrize(("narrow", "wide"), WIDENED)
def test_values_of_the_narrower_type_fit_the_wider_column_as_it_is(
    depth: Depth, narrow: str, wide: str
) -> None:
    table, schema = of(depth, wide, narrow)
    assert changes(table, schema) == []
    assert not widens(wide, narrow)


@pytest.mark.parametrize("kind", ["list", "map"])
def test_the_elements_themselves_are_widened(kind: str) -> None:
    of_kind: Callable[[Json], Json] = list_of if kind == "list" else map_of
    before, after = (struct(field("c", of_kind(each))) for each in ("int", "long"))
    assert apply(before, changes(before, after)) == after


@pytest.mark.parametrize(("old", "new"), UNSUPPORTED)
def test_any_other_change_of_a_type_is_refused_with_its_path(depth: Depth, old: str, new: str) -> None:
    table, schema = of(depth, old, new)
    with pytest.raises(SchemaProblem, match="the table holds") as caught:
        changes(table, schema)
    assert (caught.value.path, caught.value.rule) == (f"{depth[2]}c", Rule.UNSUPPORTED_TYPE_CHANGE)


@pytest.mark.parametrize(("old", "new"), MISMATCHED)
def test_a_change_of_shape_is_refused_with_its_path(depth: Depth, old: Json, new: Json) -> None:
    table, schema = of(depth, old, new)
    with pytest.raises(SchemaProblem) as caught:
        changes(table, schema)
    assert (caught.value.path, caught.value.rule) == (f"{depth[2]}c", Rule.TYPE_MISMATCH)


@pytest.mark.parametrize(("old", "new"), [("string", "int"), ("int", "long"), ("long", "int")])
def test_the_keys_of_a_map_never_change_not_even_to_a_wider_type(depth: Depth, old: str, new: str) -> None:
    table, schema = of(depth, map_of("int", key=old), map_of("int", key=new))
    with pytest.raises(SchemaProblem) as caught:
        changes(table, schema)
    assert (caught.value.path, caught.value.rule) == (f"{depth[2]}c", Rule.MAP_KEY_TYPE_MISMATCH)


def test_a_column_that_a_schema_drops_stays(depth: Depth) -> None:
    wrap = depth[0]
    table = wrap(struct(field("a", "int"), field("b", STRUCT)))
    assert changes(table, wrap(struct(field("a", "int")))) == []
    assert apply(table, []) == table


def test_columns_in_another_order_ask_for_nothing(depth: Depth) -> None:
    wrap = depth[0]
    fields = [field("a", "int"), field("b", "int"), field("c", STRUCT)]
    assert changes(wrap(struct(*fields)), wrap(struct(*fields[::-1]))) == []


@pytest.mark.parametrize(("old", "new"), [(True, False), (False, True)])
def test_no_column_is_required_so_optional_and_required_are_one(old: bool, new: bool) -> None:
    table, schema = (struct(field("a", "int", required=required)) for required in (old, new))
    assert changes(table, schema) == []


def test_a_name_that_differs_only_by_case_is_refused(depth: Depth) -> None:
    wrap, _, where = depth
    with pytest.raises(SchemaProblem) as caught:
        changes(wrap(struct(field("Id", "int"))), wrap(struct(field("id", "int"))))
    assert (caught.value.path, caught.value.rule) == (f"{where}id", Rule.FIELD_NAME_CASE_COLLISION)


def test_the_rule_stands_in_the_message() -> None:
    with pytest.raises(
        SchemaProblem, match=r"c: the table holds int, the schema wants string \(UNSUPPORTED_TYPE_CHANGE\)"
    ):
        changes(struct(field("c", "int")), struct(field("c", "string")))


def test_every_rule_is_explained_on_the_page_of_types() -> None:
    page = (Path(__file__).parents[4] / "docs" / "types.md").read_text()
    assert {rule for rule in Rule if f"`{rule}`" not in page} == set()
