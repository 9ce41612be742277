"""Which schemas are a table's: one subject, or those of a pattern."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from calve.config.job import PartName, Source
from calve.decoding.record_schemas import LISTED_FOR_S, Subjects, subjects_of
from calve.errors import Retryable
from calve.schema.wire import CONFLUENT, Schema, Wire


class Registered:
    """A registry of subjects with their versions; it remembers what it was asked."""

    wire: Wire = CONFLUENT

    def __init__(self, subjects: Mapping[str, list[Schema]]) -> None:
        self.held = dict(subjects)
        self.asked: list[str] = []
        self.aliases: dict[str, str] = {}

    def default_subject(self, topic: str, part: PartName = "value") -> str:
        return f"{topic}-{part}"

    def by_id(self, schema_id: int) -> Schema | None:
        return next((each for found in self.held.values() for each in found if each.id == schema_id), None)

    def versions(self, subject: str) -> list[Schema]:
        self.asked.append(subject)
        return self.held.get(subject, [])

    def subjects(self) -> list[str]:
        self.asked.append("*")
        return sorted(self.held)

    def subjects_of(self, schema_id: int) -> list[str]:
        return [name for name, found in self.held.items() if any(each.id == schema_id for each in found)]

    def real_name(self, subject: str) -> str:
        self.asked.append(f"alias {subject}")
        return self.aliases.get(subject, subject)

    def forget(self, subject: str) -> None:
        pass


def schemas(*ids: int) -> list[Schema]:
    return [Schema(each, f"schema {each}") for each in ids]


ORDER, PAYMENT, AUDIT = schemas(1, 4), schemas(2, 3), schemas(9)
EVENTS = {"com.acme.Order": ORDER, "com.acme.Payment": PAYMENT, "org.Audit": AUDIT, "comXacme.Order": []}


def ids(subjects: Subjects) -> list[int]:
    return [each.id for each in subjects.versions()]


@pytest.mark.parametrize(
    ("name", "matching"),
    [
        ("com.acme.Order", ["com.acme.Order"]),
        ("com.acme.*", ["com.acme.Order", "com.acme.Payment"]),
        ("*Order", ["com.acme.Order", "comXacme.Order"]),
        ("com.*.Order", ["com.acme.Order"]),
        ("*", list(EVENTS)),
        ("com.acme.[OP]*", []),
        ("com.acme.?rder", []),
        ("com.acme", []),
    ],
)
def test_only_the_star_stands_for_other_characters(name: str, matching: list[str]) -> None:
    assert Subjects(Registered(EVENTS), name).matching(list(EVENTS)) == matching


def test_versions_of_several_subjects_come_as_they_were_registered() -> None:
    assert ids(Subjects(Registered(EVENTS), "com.acme.*")) == [1, 2, 3, 4]


def test_a_subjects_own_order_outweighs_that_of_its_ids() -> None:
    registry = Registered({"a.x": schemas(7, 2), "a.y": schemas(5)})
    assert ids(Subjects(registry, "a.*")) == [5, 7, 2]


def test_ids_that_are_no_numbers_are_ordered_by_time() -> None:
    registry = Registered(
        {
            "a.x": [Schema(900, "x", registered=1.0), Schema(100, "x2", registered=3.0)],
            "a.y": [Schema(500, "y", registered=2.0)],
        }
    )
    assert ids(Subjects(registry, "a.*")) == [900, 500, 100]


def test_a_schema_of_two_subjects_is_one_version() -> None:
    assert ids(Subjects(Registered({"a.x": schemas(1, 2), "a.y": schemas(2, 3)}), "a.*")) == [1, 2, 3]


def test_a_pattern_is_not_asked_for_again_at_once() -> None:
    registry = Registered(EVENTS)
    subjects = Subjects(registry, "com.acme.*")
    for _ in range(5):
        subjects.versions()
    assert registry.asked == ["*", "com.acme.Order", "com.acme.Payment"]


def test_a_subject_that_is_registered_later_is_found_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("calve.decoding.record_schemas.time.monotonic", lambda: clock[0])
    registry = Registered(EVENTS)
    subjects = Subjects(registry, "com.acme.*")
    subjects.versions()
    registry.held["com.acme.Refund"] = schemas(10)
    assert 10 not in ids(subjects)
    clock[0] += LISTED_FOR_S
    assert ids(subjects) == [1, 2, 3, 4, 10]


def test_a_record_that_names_a_new_schema_finds_its_subject_at_once() -> None:
    registry = Registered(EVENTS)
    subjects = Subjects(registry, "com.acme.*", shared=True)
    subjects.versions()
    registry.held["com.acme.Refund"] = schemas(10, 11)
    assert subjects.learn([11, 9, 77])
    assert ids(subjects) == [1, 2, 3, 4, 10, 11]
    assert subjects.foreign == AUDIT
    assert not subjects.learn([77])


def test_a_pattern_without_a_subject_waits() -> None:
    subjects = Subjects(Registered(EVENTS), "net.*")
    assert subjects.listed() == []
    with pytest.raises(Retryable, match=r"the registry has no subject net\.\*"):
        subjects.versions()


@pytest.mark.parametrize("part", ["value", "key"])
def test_a_topic_without_a_subject_is_told_how_its_schema_is_named(part: PartName) -> None:
    with pytest.raises(Retryable) as waits:
        subjects_of(Registered({}), Source(), "topic", part).versions()
    assert f"`{part}: {{format: json, schema: FILE}}`" in str(waits.value.fix)


def test_a_table_that_names_its_subjects_leaves_the_others_to_other_tables() -> None:
    registry = Registered(EVENTS)
    found = subjects_of(registry, Source("com.acme.*"), "topic")
    assert (found.name, found.shared) == ("com.acme.*", True)
    found = subjects_of(registry, Source(), "topic")
    assert (found.name, found.shared) == ("topic-value", False)


@pytest.mark.parametrize(
    ("source", "part", "name"),
    [
        (Source(), "key", "topic-key"),
        (Source("com.acme.*"), "key", "com.acme.*"),
        (Source("com.acme.*", prefix="none"), "value", "com.acme.*"),
    ],
)
def test_keys_and_bare_values_are_left_to_no_other_table(source: Source, part: PartName, name: str) -> None:
    found = subjects_of(Registered(EVENTS), source, "topic", part)
    assert (found.name, found.shared) == (name, False)


def test_a_schema_of_the_subject_that_an_alias_stands_for_is_the_tables_own() -> None:
    registry = Registered({"real": schemas(1), "other": schemas(2)})
    registry.aliases["t-value"] = "real"
    subjects = subjects_of(registry, Source(), "t")
    assert subjects.matching(["other", "real"]) == ["real"]
    assert subjects.matching(["other"]) == []
    assert registry.asked == ["alias t-value"], "once, and only where the name itself matches nothing"
    assert subjects_of(registry, Source("real"), "t").matching(["real"]) == ["real"]
    assert registry.asked == ["alias t-value"]
