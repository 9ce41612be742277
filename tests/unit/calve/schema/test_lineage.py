"""Renames: which column a field is, however many versions named it, in whatever order their records arrive."""

from typing import Any

import pytest

from calve.schema.columns import field, list_of, map_of, struct
from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.lineage import Fit, fit, propose, settle

Json = Any


def f(name: str, kind: Json = "int", *aliases: str) -> Json:
    return field(name, kind) | ({"aliases": list(aliases)} if aliases else {})


def settled(table: Json, versions: list[Any]) -> tuple[Json, list[Fit], list[str]]:
    """The table once nothing is asked of it any more, how the versions fit then, and what was done."""
    table, done, found = settle(table, versions)
    return table, found, [str(each) for each in done]


def names(table: Json) -> list[str]:
    return [each["name"] for each in table["fields"]]


def writes(found: Fit) -> dict[str, str]:
    """Written name -> column."""
    assert found.columns is not None, found.problem
    return {each["written"]: each["name"] for each in found.columns["fields"] if each["written"]}


A = struct(f("id"), f("a"))
B = struct(f("id"), f("b", "int", "a"))
C = struct(f("id"), f("c", "int", "b"))


def test_of_two_types_of_a_new_column_the_earlier_holds_also_where_its_version_renames() -> None:
    first = struct(f("id"), f("b", "int", "a"), f("c", "string"))
    second = struct(f("id"), f("b", "int", "a"), f("c", "boolean"))
    table, found, _ = settled(A, [A, first, second])
    assert {each["name"]: each["type"] for each in table["fields"]} == {
        "id": "int",
        "b": "int",
        "c": "string",
    }
    assert [each.problem is None for each in found] == [True, True, False]


def test_a_renamed_column_keeps_its_place_and_old_records_go_on_filling_it() -> None:
    table, found, done = settled(A, [A, B])
    assert names(table) == ["id", "b"]
    assert done == ["rename a to b"]
    assert [writes(each) for each in found] == [{"id": "id", "a": "b"}, {"id": "id", "b": "b"}]


def test_names_may_change_again_and_again() -> None:
    table, found, done = settled(A, [A, B, C])
    assert (names(table), done) == (["id", "c"], ["rename a to c"])
    assert [writes(each)[name] for each, name in zip(found, "abc", strict=True)] == ["c", "c", "c"]
    table, _, done = settled(settled(A, [A, B])[0], [A, B, C])
    assert (names(table), done) == (["id", "c"], ["rename b to c"])


def test_a_name_may_change_back() -> None:
    back = struct(f("id"), f("a", "int", "b"))
    table, found, _ = settled(A, [A, B, back])
    assert names(table) == ["id", "a"]
    assert [writes(each).get("b") for each in found] == [None, "a", None]


def test_a_table_that_began_with_the_new_name_takes_records_of_the_old_one() -> None:
    for versions in ([A, B], [B, A]):
        table, found, done = settled(struct(f("id"), f("b")), versions)
        assert (names(table), done) == (["id", "b"], [])
        assert writes(found[versions.index(A)]) == {"id": "id", "a": "b"}


def test_a_column_of_a_version_that_the_registry_has_lost_is_renamed_too() -> None:
    assert settled(A, [B])[2] == ["rename a to b"]


def test_without_an_alias_a_new_name_is_a_new_column() -> None:
    table, _, done = settled(A, [A, struct(f("id"), f("b"))])
    assert (names(table), done) == (["id", "a", "b"], ["add b"])


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda inner: inner, "s"),
        (list_of, "s.element"),
        (map_of, "s.value"),
        (lambda inner: list_of(map_of(inner)), "s.element.value"),
    ],
    ids=["struct", "list", "map", "list of maps"],
)
def test_a_field_is_renamed_at_any_depth_together_with_what_holds_it(wrap: Any, path: str) -> None:
    first = struct(f("s", wrap(struct(f("a"), f("x")))))
    second = struct(f("t", wrap(struct(f("b", "long", "a"), f("x"), f("y"))), "s"))
    table, found, done = settled(first, [first, second])
    renamed = path.replace("s", "t", 1)
    assert done == ["rename s to t", f"rename {path}.a to b", f"widen {renamed}.b", f"add {renamed}.y"]
    assert all(each.problem is None and each.columns for each in found)
    inner = found[0].columns["fields"][0]["type"]  # type: ignore[index]
    while inner["type"] != "struct":
        inner = inner.get("element") or inner["value"]
    assert [(each["written"], each["name"]) for each in inner["fields"]] == [
        ("a", "b"),
        ("x", "x"),
        (None, "y"),
    ]
    assert table["fields"][0]["name"] == "t"


def test_a_rename_may_widen_and_may_not_narrow() -> None:
    wide = struct(f("id"), f("b", "long", "a"))
    assert settled(A, [A, wide])[2] == ["rename a to b", "widen b"]
    texts = struct(f("id"), f("b", "string", "a"))
    table, found, done = settled(A, [A, texts])
    assert (names(table), done) == (["id", "a"], [])
    assert found[1].problem is not None
    assert (found[1].problem.path, found[1].problem.rule) == ("b", Rule.UNSUPPORTED_TYPE_CHANGE)


def test_a_version_that_does_not_fit_renames_nothing() -> None:
    bad = struct(f("id", "string"), f("b", "int", "a"))
    table, found, done = settled(A, [A, bad])
    assert (names(table), done) == (["id", "a"], [])
    assert [each.problem is None for each in found] == [True, False]
    assert writes(found[0]) == {"id": "id", "a": "a"}


def test_a_version_that_does_not_fit_takes_no_other_down_with_its_names() -> None:
    table = struct(f("id"), f("a"), f("c", "string"))
    bad = struct(f("id", "string"), f("c", "string", "a"))
    found = fit(table, [A, bad])
    assert [each.problem is None for each in found] == [True, False]


def test_where_both_columns_exist_nothing_is_renamed() -> None:
    both = struct(f("a"), f("b"))
    table, found, done = settled(both, [both, struct(f("b", "int", "a"))])
    assert (names(table), done) == (["a", "b"], [])
    assert writes(found[1]) == {"b": "b"}


def test_a_field_that_stays_may_be_the_alias_of_a_new_one() -> None:
    table, found, done = settled(struct(f("a")), [struct(f("a")), struct(f("a"), f("b", "int", "a"))])
    assert (names(table), done) == (["a", "b"], ["add b"])
    assert writes(found[0]) == {"a": "a"}


def test_a_name_that_was_left_may_be_given_to_a_new_column() -> None:
    again = struct(f("id"), f("b", "int", "a"), f("a", "string"))
    for start in (A, settled(A, [A, B])[0]):
        table, found, done = settled(start, [A, B, again])
        assert names(table) == ["id", "b", "a"]
        assert done[-1] == "add a"
        assert [writes(each).get("a") for each in found] == ["b", None, "a"]


AMBIGUOUS = {
    "swapped": ([struct(f("a"), f("b"))], struct(f("a", "int", "b"), f("b", "int", "a"))),
    "chained": ([struct(f("a"), f("b"))], struct(f("b", "int", "a"), f("c", "int", "b"))),
    "in a ring": (
        [struct(f("a"), f("b"), f("c"))],
        struct(f("a", "int", "c"), f("b", "int", "a"), f("c", "int", "b")),
    ),
    "two columns for one": ([struct(f("a"), f("b"))], struct(f("c", "int", "a", "b"))),
    "one column for two": ([struct(f("a"))], struct(f("b", "int", "a"), f("c", "int", "a"))),
}


@pytest.mark.parametrize(("before", "after"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_an_ambiguous_rename_is_refused_by_name(before: list[Any], after: Json) -> None:
    wrapped, renamed = (struct(f("s", list_of(each))) for each in (before[0], after))
    for versions, where in (([*before, after], ""), ([wrapped, renamed], "s[].")):
        table, found, done = settled(versions[0], versions)
        assert (table, done) == (versions[0], [])
        assert found[1].problem is not None
        assert found[1].problem.rule is Rule.RENAME_AMBIGUOUS
        assert found[1].problem.path.startswith(where)
        assert found[0].problem is None


def test_two_fields_cannot_be_a_column_whose_own_version_the_registry_has_lost() -> None:
    [found] = fit(struct(f("a")), [struct(f("b", "int", "a"), f("c", "int", "a"))])
    assert found.problem is not None
    assert found.problem.rule is Rule.RENAME_AMBIGUOUS


def test_a_rename_that_only_changes_case_is_one() -> None:
    table, _, done = settled(struct(f("Id")), [struct(f("Id")), struct(f("id", "int", "Id"))])
    assert (names(table), done) == (["id"], ["rename Id to id"])


def test_versions_without_columns_stand_aside() -> None:
    problem = SchemaProblem("x", "no column holds it")
    table, found, _ = settled(A, [A, problem, B])
    assert names(table) == ["id", "b"]
    assert found[1].problem is problem


def test_a_proposal_says_what_would_be_added_renamed_and_no_longer_filled() -> None:
    first = struct(f("id"), f("s", struct(f("a"), f("gone"))), f("left"))
    candidate = struct(f("id", "long"), f("s", struct(f("b", "int", "a"))), f("new"))
    found = propose(first, [first], candidate)
    assert [str(each) for each in found.changes] == ["rename s.a to b", "widen id", "add new"]
    assert (found.unfilled, found.problem) == (("s.gone", "left"), None)


def test_a_proposal_that_does_not_fit_changes_nothing() -> None:
    found = propose(A, [A], struct(f("id", "string"), f("b", "int", "a")))
    assert found.changes == ()
    assert found.problem is not None
    assert (found.problem.path, found.problem.rule) == ("id", Rule.UNSUPPORTED_TYPE_CHANGE)
