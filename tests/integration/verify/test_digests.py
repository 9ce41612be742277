"""Digests prove each round's rows by the table alone: maintenance changes nothing of that, and a changed row is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from calve.config.maintenance import Maintenance
from calve.config.steps import Flatten
from calve.errors import CalveError
from calve.modes.upsert import Upsert
from calve.schema.columns import Transform
from calve.table.digests import RoundDigest
from calve.table.summary import DIGEST, DIGESTS
from glue_jobs.iceberg import kept_digests, purge
from glue_jobs.maintenance.between_rounds import expire
from tests.integration.requests.test_release import asked
from tests.integration.support.crashing import Died, dying
from tests.integration.support.engine import Engine, suspended
from tests.integration.support.proofs import assert_proved, proof_of_digests
from tests.integration.support.records.persons import Scene

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": ["null", "int"]}]}
FIELDS = {
    "id": "long",
    "small": ["null", "int"],
    "ratio": ["null", "float"],
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "name": ["null", "string"],
    "day": {"type": "int", "logicalType": "date"},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "ok": "boolean",
    "tags": {"type": "array", "items": ["null", "string"]},
    "marks": {"type": "map", "values": "double"},
    "places": ["null", {"type": "array", "items": PLACE}],
    "where": ["null", "Place"],
}
FEW = Maintenance(snapshots_at_least=1, snapshots_at_most=2)


def schema(fields: dict[str, Any]) -> str:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Everything", "fields": named})


def records(count: int, seed: int) -> Iterator[dict[str, Any]]:
    random = Random(seed)
    for n in range(count):
        place = {"x": random.choice([None, n])}
        yield {
            "id": n,
            "small": random.choice([None, -n]),
            "ratio": random.choice([None, float("nan"), 0.1 * n, -0.0]),
            "price": Decimal(random.randrange(-(10**9), 10**9)).scaleb(-2),
            "name": random.choice([None, "", "é" * (n % 11), "a longer name of some words"]),
            "day": date(2020, 1, 1 + n % 28),
            "at": datetime(2020, 1, 1, microsecond=n, tzinfo=UTC),
            "ok": n % 2 == 0,
            "tags": random.choice([[], [None], ["a", "b", None]]),
            "marks": random.choice([{}, {"x": 1.5, "y": 2.0}]),
            "places": random.choice([None, [], [place, place]]),
            "where": random.choice([None, place]),
        }


def rounds(engine: Engine, topic: str, count: int, **settings: Any) -> None:
    """Rounds of five good records in each of two partitions."""
    for _ in range(count):
        for partition in range(2):
            engine.produce(topic, 5, partition=partition)
        engine.drain(engine.target(topic, **settings))


def faults_of(engine: Engine, topic: str) -> list[str]:
    return [f"{each.partition}: {each.message}" for each in proof_of_digests(engine, topic).findings]


def kept(engine: Engine, topic: str) -> list[list[RoundDigest]]:
    """The digests of each file, the newest file first."""
    return [[*file.digests] for file in kept_digests.files_of(engine.table(topic)).values()]


def expire_all(engine: Engine, topic: str) -> None:
    target = engine.target(topic, maintenance=FEW)
    target.open()
    expire(target.config, target.opened.main, None, said=None)


@pytest.mark.parametrize(
    "layout", [{}, {"sort_by": (Transform("name"),), "partition_by": (Transform("ok"),)}]
)
def test_both_engines_give_a_commit_the_same_digest(engine: Engine, layout: dict[str, Any]) -> None:
    topic = engine.topic(schema=schema(FIELDS))
    engine.produce(topic, [*records(300, seed=1)])
    found = []
    for choice in ("columnar", "rows"):
        table = f"{topic}_{choice}"
        engine.drain(engine.target(topic, table=table, engine=choice, **layout))
        assert_proved(proof_of_digests(engine, table))
        (commit, *_) = engine.table(table).ancestors()
        found.append(json.loads(commit.summary[DIGEST])["rows"])
    assert found[0] == found[1]
    assert sum(each[0] for each in found[0].values()) == 300


@pytest.mark.parametrize("version", [2, 3])
def test_digests_outlive_compaction_and_changes_of_columns_and_their_snapshots(
    engine: Engine, version: int
) -> None:
    topic = engine.topic(schema=schema(FIELDS))
    engine.produce(topic, [*records(50, seed=1)])
    engine.drain(engine.target(topic, format_version=version))
    wider = {name: kind for name, kind in FIELDS.items() if name != "small"} | {"ratio": ["null", "double"]}
    price = FIELDS["price"] | {"precision": 20}  # type: ignore[operator]
    named = json.loads(schema(wider | {"price": price, "less": ["null", "long"], "new": ["null", "string"]}))
    named["fields"][-2]["aliases"] = ["small"]
    for each in named["fields"][-2:]:
        each["default"] = None
    engine.register(topic, json.dumps(named))
    later = ({**each, "less": each.pop("small"), "new": "x"} for each in records(50, seed=2))
    engine.produce(topic, [*later])
    engine.drain(engine.target(topic, format_version=version))
    columns = {each["name"]: each["type"] for each in engine.table(topic).schema["fields"]}
    assert (columns["less"], columns["ratio"], columns["price"]) == ("long", "double", "decimal(20, 2)")
    assert_proved(proof_of_digests(engine, topic))
    engine.compact(topic)
    assert_proved(proof_of_digests(engine, topic))
    expire_all(engine, topic)
    assert [len(each) for each in kept(engine, topic)] == [1]
    found = proof_of_digests(engine, topic)
    assert_proved(found)
    assert found.checks[0].figures == {"rounds": 2, "rows": 100}


ROWS_OF = "added 5 rows, the table has"


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_that_others_change_is_found_and_its_round_named(engine: Engine, version: int) -> None:
    topic = engine.topic()
    rounds(engine, topic, 3, format_version=version)
    middle = RoundDigest.of([*engine.table(topic).ancestors()][1])
    assert middle is not None
    assert_proved(proof_of_digests(engine, topic))
    expire_all(engine, topic)
    assert [len(each) for each in kept(engine, topic)] == [2]
    place = "_kafka.partition = 1 AND _kafka.offset = 7"
    head = next(engine.table(topic).ancestors()).id
    for change, what in (
        (f"UPDATE {{t}} SET price = price + 1 WHERE {place}", "have other values now"),
        (f"UPDATE {{t}} SET side = NULL WHERE {place}", "have other values now"),
        (f"DELETE FROM {{t}} WHERE {place}", f"{ROWS_OF} 4"),
        (f"INSERT INTO {{t}} SELECT * FROM {{t}} WHERE {place}", f"{ROWS_OF} 6"),
    ):
        engine.sql(change, topic)
        (found,) = faults_of(engine, topic)
        assert found.startswith("1: ")
        assert middle.round in found
        assert what in found
        engine.rollback(topic, head)
        assert_proved(proof_of_digests(engine, topic))
    swap = "UPDATE {t} SET price = CASE price WHEN 2 THEN 3 ELSE 2 END WHERE price IN (2, 3)"
    engine.sql(f"{swap} AND _kafka.partition = 1 AND _kafka.offset BETWEEN 5 AND 9", topic)
    (swapped,) = faults_of(engine, topic)
    assert middle.round in swapped


def test_rows_that_no_round_has_read_are_found(engine: Engine) -> None:
    topic = engine.topic()
    rounds(engine, topic, 1)
    kafka = (
        "named_struct('topic', _kafka.topic, 'partition', {p}, 'offset', {o}, 'timestamp', _kafka.timestamp,"
    )
    kafka += " 'timestamp_type', _kafka.timestamp_type, 'key', _kafka.key, 'headers', _kafka.headers,"
    kafka += " 'schema_id', _kafka.schema_id)"
    for partition, offset in ((0, 5), (7, 0)):
        row = kafka.format(p=partition, o=f"{offset}L")
        engine.sql(f"INSERT INTO {{t}} SELECT id, side, price, {row} FROM {{t}} WHERE id = 0 LIMIT 1", topic)
        assert f"{partition}: 1 rows have offsets that no round has read yet" in faults_of(engine, topic)


def test_files_follow_each_other_when_they_are_full(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_digests, "FULL", 6)
    topic = engine.topic()
    for _ in range(5):
        rounds(engine, topic, 2)
        expire_all(engine, topic)
    files = kept(engine, topic)
    assert [len(each) for each in files] == [2, 4, 3]
    found = proof_of_digests(engine, topic)
    assert_proved(found)
    assert found.checks[0].figures == {"rounds": 10, "rows": 100}
    engine.sql("DELETE FROM {t} WHERE _kafka.partition = 0 AND _kafka.offset = 3", topic)
    (fault,) = faults_of(engine, topic)
    assert files[-1][0].round in fault


@pytest.mark.parametrize("point", ["expiry.kept", "expiry.noted", "snapshots.expired"])
def test_no_digest_is_lost_or_doubled_if_the_job_dies_while_snapshots_expire(
    engine: Engine, point: str
) -> None:
    topic = engine.topic()
    rounds(engine, topic, 3)
    with dying(point), pytest.raises(Died):
        expire_all(engine, topic)
    rounds(engine, topic, 1)
    expire_all(engine, topic)
    (digests,) = kept(engine, topic)
    assert len({each.round for each in digests}) == len(digests)
    found = proof_of_digests(engine, topic)
    assert_proved(found)
    assert found.checks[0].figures == {"rounds": 4, "rows": 40}


def test_a_released_table_keeps_no_file_of_digests(engine: Engine) -> None:
    topic = engine.topic()
    rounds(engine, topic, 2)
    expire_all(engine, topic)
    folder = f"{engine.table(topic).java.location()}/_digests/"
    assert len(purge.listed(engine.table(topic), folder)) == 1
    asked(engine, topic)
    with suspended("not_ours"):
        engine.drain(engine.target(topic))
    assert purge.listed(engine.table(topic), folder) == []


def test_a_file_that_others_delete_stops_nothing_and_its_rounds_have_no_digest(engine: Engine) -> None:
    topic = engine.topic()
    rounds(engine, topic, 3)
    expire_all(engine, topic)
    table = engine.table(topic)
    purge.delete(table, [table.properties[DIGESTS]])
    found = proof_of_digests(engine, topic)
    assert found.findings == ()
    assert {each.name: each.figures for each in found.checks} == {
        "digests": {"rounds": 1, "rows": 10},
        "without a digest": {"rows": 20},
    }
    rounds(engine, topic, 2)
    expire_all(engine, topic)
    assert [len(each) for each in kept(engine, topic)] == [2]


def test_maintenance_takes_no_file_of_digests_for_an_orphan(engine: Engine) -> None:
    topic = engine.topic()
    rounds(engine, topic, 2)
    expire_all(engine, topic)
    table = engine.table(topic)
    assert table.properties[DIGESTS] not in purge._orphans(table, 0)
    files = purge.files_of(table)
    assert table.properties[DIGESTS] in files
    assert table.properties[DIGESTS] not in purge.unreachable(table, files)


def test_a_table_by_key_is_refused_and_has_no_digests(engine: Engine) -> None:
    topic = engine.topic()
    rounds(engine, topic, 1, upsert=Upsert(("id",)))
    assert DIGEST not in next(engine.table(topic).ancestors()).summary
    with pytest.raises(CalveError, match="in mode upsert, a later round changes rows"):
        proof_of_digests(engine, topic)


def test_rows_of_another_mode_are_not_proved_after_the_table_appends_again(engine: Engine) -> None:
    topic = engine.topic()
    rounds(engine, topic, 3)
    expire_all(engine, topic)
    assert [len(each) for each in kept(engine, topic)] == [2]
    rounds(engine, topic, 1, upsert=Upsert(("id",)))
    rounds(engine, topic, 1)

    def proved() -> dict[str, Any]:
        found = proof_of_digests(engine, topic)
        assert found.findings == ()
        assert not found.complete
        return {each.name: each.figures for each in found.checks}

    assert proved() == {"digests": {"rounds": 1, "rows": 10}, "without a digest": {"rows": 5}}
    rounds(engine, topic, 1)
    expire_all(engine, topic)
    assert [len(each) for each in kept(engine, topic)] == [1]
    table = engine.table(topic)
    assert len(purge.listed(table, f"{table.java.location()}/_digests/")) == 1
    assert proved() == {"digests": {"rounds": 2, "rows": 20}, "without a digest": {"rows": 5}}


@pytest.mark.long
def test_a_forgotten_person_leaves_no_digest_and_other_rounds_stay_proved(
    engine: Engine, tmp_path: Path
) -> None:
    scene = Scene(engine, tmp_path, {"steps": (Flatten(),)})
    scene.round()
    scene.round(1, 2)
    expire_all(engine, scene.topic)
    scene.round()
    before = [RoundDigest.of(each) for each in engine.table(scene.topic).ancestors()]
    scene.ask(contact_phone=scene.persons[0].phone)
    scene.work()
    table = engine.table(scene.topic)
    (digests,) = kept(engine, scene.topic)
    assert [each.parts[0].digest is None for each in digests] == [True, False, True]
    assert {each.round for each in before if each} < {each.round for each in digests}
    assert not any(DIGEST in each.summary for each in table.ancestors())
    (file,) = purge.listed(table, f"{table.java.location()}/_digests/")
    assert file == table.properties[DIGESTS]
    found = proof_of_digests(engine, scene.topic)
    assert found.findings == ()
    assert {each.name: each.figures for each in found.checks} == {
        "digests": {"rounds": 1, "rows": 2},
        "changed by a request": {"rounds": 2, "rows": 4},
    }
    scene.round()
    engine.sql("DELETE FROM {t} WHERE _kafka.offset = 12", scene.topic)
    (fault,) = faults_of(engine, scene.topic)
    assert digests[1].round in fault
