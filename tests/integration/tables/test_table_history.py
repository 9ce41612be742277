"""What others may do to a table: roll it back, compact it, expire its history, replace it. Every round here is run by a
new job (`engine.target` and an empty `Memory`): nothing but the table and the topic says where it goes on.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from calve.errors import LostRace
from calve.names import DEAD_LETTERS_SUFFIX
from calve.table.position import Ledger
from calve.table.protocol import nearest_position
from glue_jobs.rounds.loop import TableLoop
from tests.integration.support.engine import Engine, at, everything, suspended
from tests.integration.support.events import assert_as_documented
from tests.integration.support.running import run


def forget_history(engine: Engine, topic: str) -> None:
    """Compactions and expiry by others: no snapshot of main says what the table holds."""
    engine.compact(topic)
    engine.compact(topic)
    engine.expire_history(topic)
    assert nearest_position(engine.table(topic).ancestors()) is None


def test_a_rolled_back_table_replays_rows_and_rejects_exactly_once(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    first = engine.ingest(topic, 10, 2)
    engine.ingest(topic, 8, 3)
    engine.ingest(topic, 5)
    engine.rollback(topic, first)
    assert engine.offsets(topic) == everything(10)
    engine.drain(engine.target(topic))
    bad = [(0, offset) for offset in (10, 11, 20, 21, 22)]
    assert engine.offsets(topic) == [each for each in everything(28) if each not in bad]
    assert engine.letter_offsets(topic) == bad


@pytest.mark.full
def test_a_table_rolled_back_to_its_birth_replays_everything_exactly_once(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.round(engine.target(topic))
    birth = engine.table(topic).head
    assert birth is not None
    engine.ingest(topic, 4, 2)
    engine.ingest(topic, 4, 2)
    engine.rollback(topic, birth)
    engine.drain(engine.target(topic))
    bad = [(0, offset) for offset in (4, 5, 10, 11)]
    assert engine.offsets(topic) == [each for each in everything(12) if each not in bad]
    assert engine.letter_offsets(topic) == bad


@pytest.mark.full
def test_a_table_rolled_back_twice_keeps_every_reject_once(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    first = engine.ingest(topic, 3, 1)
    engine.ingest(topic, 3, 1)
    for _ in range(2):
        engine.rollback(topic, first)
        engine.drain(engine.target(topic))
    engine.ingest(topic, 3, 1)
    assert engine.letter_offsets(topic) == [(0, 3), (0, 7), (0, 11)]
    assert len(engine.offsets(topic)) == 9


@pytest.mark.full
@pytest.mark.parametrize("point", ["stage.begin", "publish.begin"])
def test_a_table_rolled_back_during_a_round_refuses_the_round(engine: Engine, point: str) -> None:
    topic = engine.topic(partitions=1)
    first = engine.ingest(topic, 10)
    engine.ingest(topic, 8, 1)
    engine.mixed(topic, 5, 1)
    with at(point, lambda _: engine.rollback(topic, first)), pytest.raises(LostRace):
        engine.round(engine.target(topic))
    engine.drain(engine.target(topic))
    bad = [(0, 18), (0, 24)]
    assert engine.offsets(topic) == [each for each in everything(25) if each not in bad]
    assert engine.letter_offsets(topic) == bad
    letters = engine.table(topic + DEAD_LETTERS_SUFFIX)
    assert set(letters.refs()) == {"main"}


def test_a_job_started_after_a_commit_and_before_a_rollback_reads_on(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """The position that the rollback leaves is of the job's former run: it is no rival's."""
    topic = engine.topic(partitions=1)
    first = engine.ingest(topic, 10)
    engine.ingest(topic, 8)
    engine.mixed(topic, 5)
    loop = TableLoop(engine.target(topic), threading.Event(), drain=True)
    with at("publish.begin", lambda _: engine.rollback(topic, first)):
        assert run(loop) == "running"
    assert engine.offsets(topic) == everything(23)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    (told,) = [each for each in said if each["event"] == "table.rolled_back"]
    assert told["snapshot_id"] == first
    assert_as_documented([told])


@pytest.mark.parametrize("point", [pytest.param("stage.end", marks=pytest.mark.full), "publish.begin"])
def test_a_round_is_published_over_a_compaction_by_others(engine: Engine, point: str) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5)
    engine.ingest(topic, 5)
    engine.mixed(topic, 10, 2)
    with at(point, lambda _: engine.compact(topic)):
        (outcome,) = engine.drain(engine.target(topic))
    operations = [commit.summary.get("calve.round") for commit in engine.table(topic).ancestors()][:2]
    assert operations == [outcome.position.round, None]
    assert engine.offsets(topic) == everything(20)
    assert engine.letter_offsets(topic) == [(0, 20), (0, 21)]


def test_rows_that_others_append_and_delete_do_not_move_the_position(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5)
    engine.sql("INSERT INTO {t} SELECT * FROM {t} WHERE _kafka.offset = 4", topic)
    engine.sql("DELETE FROM {t} WHERE _kafka.offset = 0", topic)
    engine.ingest(topic, 5)
    assert engine.offsets(topic) == sorted([*everything(10)[1:], (0, 4)])


@pytest.mark.full
def test_expiry_of_all_but_the_newest_snapshot_changes_nothing(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 10, 1)
    engine.ingest(topic, 5)
    engine.expire_history(topic)
    engine.expire_history(topic + DEAD_LETTERS_SUFFIX)
    engine.ingest(topic, 5)
    assert engine.offsets(topic) == [each for each in everything(21) if each != (0, 10)]
    assert engine.letter_offsets(topic) == [(0, 10)]


@pytest.mark.full
def test_the_tag_keeps_the_position_of_an_idle_table(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 10, 1)
    engine.ingest(topic, 5)
    target = engine.target(topic)
    engine.drain(target)
    target.opened.mark_idle()
    forget_history(engine, topic)
    assert engine.round(engine.target(topic)).snapshot is None
    assert nearest_position(engine.table(topic).ancestors()) is not None
    engine.ingest(topic, 5, 1)
    assert engine.offsets(topic) == [each for each in everything(21) if each != (0, 10)]
    assert engine.letter_offsets(topic) == [(0, 10), (0, 21)]


@pytest.mark.full
def test_the_tag_keeps_the_position_of_a_table_that_has_read_nothing(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    target = engine.target(topic)
    engine.drain(target)
    target.opened.mark_idle()
    for _ in range(2):
        engine.sql("INSERT INTO {t} SELECT * FROM {t} WHERE false", topic)
    engine.expire_history(topic)
    assert nearest_position(engine.table(topic).ancestors()) is None
    engine.ingest(topic, 5)
    assert engine.offsets(topic) == everything(5)


def untagged(_: Engine, __: str) -> None: ...


def older(engine: Engine, topic: str) -> None:
    """A tag that was set before the newest rows."""
    _tag(engine, topic)
    engine.ingest(topic, 5)


def older_than_rejects(engine: Engine, topic: str) -> None:
    """A tag that was set before the newest dead letters, with as many rows."""
    _tag(engine, topic)
    engine.ingest(topic, 0, 2)


def fewer_rows(engine: Engine, topic: str) -> None:
    """A tag on a position that the table was rolled back from."""
    engine.compact(topic)
    behind = engine.table(topic).head
    assert behind is not None
    engine.ingest(topic, 5)
    _tag(engine, topic)
    engine.rollback(topic, behind)


def _tag(engine: Engine, topic: str) -> None:
    target = engine.target(topic)
    target.open()
    target.opened.mark_idle()


@pytest.mark.long
@pytest.mark.parametrize(
    "history",
    [
        untagged,
        *(pytest.param(each, marks=pytest.mark.full) for each in (older, older_than_rejects, fewer_rows)),
    ],
)
def test_a_table_whose_position_was_expired_is_suspended(
    engine: Engine, history: Callable[[Engine, str], None]
) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 10)
    history(engine, topic)
    if history is fewer_rows:
        engine.expire_history(topic)
    else:
        forget_history(engine, topic)
    held = engine.offsets(topic)
    engine.produce(topic, 5)
    with suspended("position_lost"):
        engine.round(engine.target(topic))
    assert engine.offsets(topic) == held


@pytest.mark.parametrize("replacement", ["SELECT * FROM {t}", "SELECT 1 AS mine"])
def test_a_table_that_a_user_replaced_is_suspended_and_left_alone(engine: Engine, replacement: str) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 10)
    engine.sql(f"CREATE OR REPLACE TABLE {{t}} USING iceberg AS {replacement}", topic)
    before = engine.rows(topic)
    held = (before.columns, before.count())
    engine.produce(topic, 5)
    with suspended("position_lost"):
        engine.round(engine.target(topic))
    after = engine.rows(topic)
    assert (after.columns, after.count()) == held


def test_a_table_that_calve_did_not_make_is_left_alone(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.sql("CREATE TABLE {t} USING iceberg AS SELECT 1L AS id", topic)
    engine.produce(topic, 5)
    with suspended("not_ours"):
        engine.round(engine.target(topic))
    assert engine.rows(topic).columns == ["id"]


@pytest.mark.full
def test_a_dropped_table_is_made_again_with_every_row_and_reject_once(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 5, 2)
    engine.sql("DROP TABLE {t} PURGE", topic)
    engine.drain(engine.target(topic))
    assert engine.offsets(topic) == everything(5)
    assert engine.letter_offsets(topic) == [(0, 5), (0, 6)]


def test_a_position_of_a_newer_release_suspends_the_table(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 10)
    main = engine.table(topic)
    newer = main.java.newAppend()
    for key, value in next(main.ancestors()).summary.items():
        if key.startswith("calve."):
            newer = newer.set(key, "99" if key == "calve.format" else value)
    newer.commit()
    engine.produce(topic, 5)
    with suspended("format_too_new"):
        engine.round(engine.target(topic))
    assert engine.offsets(topic) == everything(10)


def test_every_ledger_of_the_history_adds_up_to_the_table(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.ingest(topic, 10, 2)
    engine.compact(topic)
    engine.ingest(topic, 5, 1)
    texts = [commit.summary.get("calve.ledger") for commit in engine.table(topic).ancestors()]
    ledgers = [Ledger.from_json(text) for text in texts if text]
    assert sum(ledger.span for ledger in ledgers) == 18
    assert sum(ledger.rows_appended for ledger in ledgers) == engine.rows(topic).count() == 15
    assert sum(ledger.dead_lettered for ledger in ledgers) == engine.letters(topic).count() == 3
