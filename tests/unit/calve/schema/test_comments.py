from typing import Any

from calve.schema.columns import field, list_of, map_of, struct
from calve.schema.lineage import comments, propose, settle


def columns(doc: str | None, inside: str | None = None) -> Any:
    item = struct(field("n", "int", doc=inside))
    return struct(field("a", "int", doc=doc), field("b", list_of(item)), field("c", map_of(item)))


def test_a_column_gets_the_newest_comment_of_its_versions_at_any_depth() -> None:
    found = comments(columns("old"), [columns("old"), columns("new", "deep"), columns(None)])
    assert [(each.path, each.where, each.doc) for each in found] == [
        ("a", "a", "new"),
        ("b.element.n", "b[].n", "deep"),
        ("c.value.n", "c{}.n", "deep"),
    ]


def test_a_comment_that_somebody_else_gave_stays() -> None:
    assert comments(columns("mine"), [columns("old"), columns("new")]) == []


def test_versions_that_say_other_things_settle() -> None:
    versions = [columns("one", "x"), columns("two"), columns("one", "y"), columns("three")]
    table, done, _ = settle(struct(), versions)
    assert comments(table, versions) == []
    assert settle(table, versions)[1] == []
    assert table["fields"][0]["doc"] == "three"
    assert table["fields"][1]["type"]["element"]["fields"][0]["doc"] == "y"
    assert {each.kind for each in done} == {"add", "comment"}


def test_a_plan_tells_only_of_comments_that_the_candidate_changes() -> None:
    table = columns("one")
    said = propose(table, [columns("one"), columns("two")], columns("three")).changes
    assert [(each.kind, each.path, each.doc) for each in said] == [("comment", "a", "three")]


def test_a_renamed_column_takes_the_comment_of_its_new_name() -> None:
    renamed = struct(field("z", "int", doc="new") | {"aliases": ["a"]})
    table, _, _ = settle(struct(), [struct(field("a", "int", doc="old")), renamed])
    assert table["fields"] == [{"name": "z", "required": False, "type": "int", "doc": "new"}]
