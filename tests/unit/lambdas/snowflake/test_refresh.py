"""Snowflake's tables follow the lake's, whatever of the announcements comes, comes twice, or does not come."""

import itertools
import json
import random
from functools import cache
from typing import Any

import pytest
from botocore.exceptions import ClientError

from calve.names import TableName
from lambdas import publish_states
from lambdas.followers import may_pass
from lambdas.publish_states import State, Target
from lambdas.snowflake import refresh
from lambdas.snowflake.refresh import Outcome, Refresher, SnowflakeTables, feed, reconcile
from tests.alarms import embedded, failed, goes_off, put_aside
from tests.standins.snowflake.server import Faults
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.snowflake.world import TRADES, World
from tests.unit.lambdas.states_table import NAME, make_states_table

USERS = TableName("trading", "users")
KEY = ("ICEBERG TABLE", ("TRADING", "TRADING", "TRADES"))


@pytest.fixture
def refresher(snow: World, monkeypatch: pytest.MonkeyPatch) -> Refresher:
    snow.deploy()
    made = Refresher(
        SnowflakeTables(snow.service, snow.config),
        snow.client("glue"),
        snow.client("s3"),
        make_states_table(),
    )
    monkeypatch.setenv("CALVE_NAME", "trading")
    monkeypatch.setattr(publish_states, "PAUSE_S", 0.0)
    monkeypatch.setattr(refresh, "WAIT_S", 0.0)
    monkeypatch.setattr(refresh, "refresher", cache(lambda: made))
    return made


def look(refresher: Refresher, table: TableName = TRADES) -> Outcome:
    return refresher.look(table)


def shown(snow: World) -> str:
    return str(snow.account.rights.objects[KEY].facts["metadata"])


def message(table: TableName, number: int = 0) -> dict[str, str]:
    detail = {"deployment": "trading", "database": table.database, "table": table.table}
    return {"messageId": f"{table}-{number}", "body": json.dumps({"detail": detail})}


def state(refresher: Refresher, table: TableName = TRADES) -> State | None:
    found = refresher.states.find(Target.SNOWFLAKE, str(table))
    return found.state if found else None


def test_a_new_table_is_made_and_a_commit_is_followed(snow: World, refresher: Refresher) -> None:
    assert look(refresher).error is None
    assert state(refresher) == State.PENDING
    snow.commit()
    assert look(refresher).lag_s is not None
    assert state(refresher) == State.SYNCED
    second = snow.commit()
    look(refresher)
    assert shown(snow) == second
    assert snow.account.rights.objects[KEY].options["AUTO_REFRESH"]


def test_readers_may_read_a_table_that_was_made_after_the_deploy(snow: World, refresher: Refresher) -> None:
    snow.commit()
    look(refresher)
    assert snow.account.rights.has("CALVE_TRADING_READER", "SELECT", *KEY)
    assert not snow.account.rights.has("CALVE_TRADING_READER", "CREATE ICEBERG TABLE", "SCHEMA", KEY[1][:2])


def test_a_burst_is_one_refresh(snow: World, refresher: Refresher) -> None:
    snow.commit()
    look(refresher)
    for _ in range(50):
        snow.commit()
    batch = {"Records": [message(TRADES, number) for number in range(50)]}
    assert feed(batch, Context()) == {"batchItemFailures": []}
    assert len([sql for sql in snow.statements() if sql.endswith("REFRESH")]) == 1


def test_nothing_is_done_where_both_agree(snow: World, refresher: Refresher) -> None:
    snow.commit()
    look(refresher)
    before = snow.state()
    assert look(refresher) == Outcome(TRADES)
    assert snow.state() == before
    assert not [sql for sql in snow.statements() if "REFRESH" in sql and sql.startswith("ALTER")]


def test_what_snowflake_has_already_is_not_taken_back(snow: World, refresher: Refresher) -> None:
    old = snow.commit()
    look(refresher)
    new = snow.commit()
    snow.account.iceberg.refresh_by_itself()
    glue = snow.client("glue")
    late = {"Name": "trades", "Parameters": {"table_type": "ICEBERG", "metadata_location": old}}
    glue.update_table(DatabaseName="trading", TableInput=late)  # what a reader that is late has seen
    assert look(refresher).error is None
    assert shown(snow) == new


def test_a_shown_file_that_is_denied_counts_as_gone(snow: World, refresher: Refresher) -> None:
    snow.commit()
    look(refresher)
    old = shown(snow)

    def deny(params: dict[str, Any], **_: Any) -> None:  # as S3 where a role may list a prefix alone
        if old.endswith(params["Key"]):
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "GetObject")

    refresher.s3.meta.events.register("provide-client-params.s3.GetObject", deny)
    new = snow.commit()
    look(refresher)
    assert shown(snow) == new


def test_a_table_that_was_made_anew_is_made_anew(snow: World, refresher: Refresher) -> None:
    snow.commit()
    look(refresher)
    other = snow.commit(uuid="u-2")
    look(refresher)
    assert shown(snow) == other
    assert [sql for sql in snow.statements() if sql.startswith("DROP ICEBERG TABLE")]


def test_a_table_that_is_gone_goes(snow: World, refresher: Refresher) -> None:
    snow.commit()
    look(refresher)
    snow.client("glue").delete_table(DatabaseName="trading", Name="trades")
    look(refresher)
    assert KEY not in snow.account.rights.objects
    assert state(refresher) is None


def test_lost_announcements_are_found_by_the_schedule(snow: World, refresher: Refresher) -> None:
    for each in (TRADES, USERS):
        look(refresher, each)
        snow.commit(each)
    reconcile({}, Context())
    last = snow.commit()
    reconcile({}, Context())
    assert shown(snow) == last
    assert state(refresher, USERS) == State.SYNCED


def test_a_refresh_that_is_stuck_is_told_and_mended(
    snow: World, refresher: Refresher, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    snow.commit()
    look(refresher)
    snow.account.iceberg.stalled[KEY[1]] = "the volume was out of reach"
    capsys.readouterr()
    reconcile({}, Context())
    said = capsys.readouterr().out
    assert goes_off("snowflake-stuck", embedded(said))
    (record,) = [each for each in caplog.records if each.message == "snowflake.stuck"]
    assert "the volume was out of reach" in record.__dict__["reason"]
    assert look(refresher).stuck is None


def test_what_snowflake_refuses_is_a_failure_with_its_words_and_is_not_tried_at_once(
    snow: World, refresher: Refresher, capsys: pytest.CaptureFixture[str]
) -> None:
    snow.commit()
    snow.client("iam").delete_role_policy(RoleName="volume", PolicyName="Work")
    assert feed({"Records": [message(TRADES)]}, Context()) == {"batchItemFailures": []}
    assert goes_off("snowflake-failed", embedded(capsys.readouterr().out))
    found = refresher.states.find(Target.SNOWFLAKE, str(TRADES))
    assert found
    assert found.state == State.FAILED
    assert "not authorized to perform: s3:GetBucketLocation" in (found.reason or "")


def test_an_account_that_does_not_answer_is_tried_again(snow: World, refresher: Refresher) -> None:
    snow.commit()
    snow.api.faults = Faults(overloaded=100)
    batch = {"Records": [message(TRADES, 1), message(TRADES, 2), {"messageId": "bad", "body": "{"}]}
    again = feed(batch, Context())["batchItemFailures"]
    assert [each["itemIdentifier"] for each in again] == ["trading.trades-1", "trading.trades-2", "bad"]


def test_commits_that_cannot_be_followed_are_put_aside_and_told(snow: World, refresher: Refresher) -> None:
    snow.commit()
    snow.api.faults = Faults(overloaded=1000)
    told = message(TRADES)
    assert put_aside("snowflake-messages-failed", lambda event: feed(event, Context()), told, of="Failed")


def test_a_commit_that_is_seen_late_is_told(
    snow: World, refresher: Refresher, capsys: pytest.CaptureFixture[str]
) -> None:
    snow.commit()  # long ago
    feed({"Records": [message(TRADES)]}, Context())
    assert goes_off("snowflake-lag", embedded(capsys.readouterr().out))


def test_a_comparison_that_fails_is_told(snow: World, refresher: Refresher) -> None:
    refresher.states._client.delete_table(TableName=NAME)
    with pytest.warns(UserWarning, match="No application metrics"), pytest.raises(ClientError):
        reconcile({}, Context())
    assert failed("snowflake-not-reconciled", "Reconcile")


def test_of_two_looks_one_waits(snow: World, refresher: Refresher) -> None:
    snow.commit()
    now = refresher.now_ms()
    assert refresher.states.take(Target.SNOWFLAKE, str(TRADES), "other", now_ms=now, until_ms=now + 60_000)
    assert may_pass(look(refresher).error)
    assert KEY not in snow.account.rights.objects
    refresher.states.release(Target.SNOWFLAKE, str(TRADES), "other")
    assert look(refresher).error is None


def test_a_linked_database_is_watched_and_nothing_is_done_to_it(snow: World, refresher: Refresher) -> None:
    linked = snow.having(tables="linked_database")
    snow.deploy(old=snow.wanted, wanted=linked)
    snow.commit()
    watching = Refresher(
        SnowflakeTables(snow.service, linked.config), refresher.glue, refresher.s3, refresher.states
    )
    done = len(snow.statements())
    assert look(watching).lag_s is not None
    assert state(refresher) == State.SYNCED
    assert all(sql.startswith("SELECT SYSTEM$") for sql in snow.statements()[done:])


@pytest.mark.parametrize("seed", range(6))
def test_any_order_repetition_and_loss_of_announcements_ends_where_the_lake_is(
    snow: World, refresher: Refresher, seed: int
) -> None:
    chance = random.Random(seed)
    heads, pending = {}, []
    for each in (TRADES, USERS):
        look(refresher, each)
    for _ in range(12):
        table = chance.choice([TRADES, USERS])
        heads[table] = snow.commit(table)
        pending += [table] * chance.choice([0, 1, 2])
        if chance.random() < 0.3:
            snow.account.iceberg.refresh_by_itself()
        chance.shuffle(pending)
        batch, pending = pending[:3], pending[3:]
        feed({"Records": [message(each, number) for number, each in enumerate(batch)]}, Context())
    reconcile({}, Context())
    for table, location in heads.items():
        key = ("ICEBERG TABLE", ("TRADING", "TRADING", table.table.upper()))
        assert snow.account.rights.objects[key].facts["metadata"] == location


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_a_death_at_any_statement_is_made_good_by_the_next_look(
    snow: World, refresher: Refresher, *, before: bool, known: bool
) -> None:
    for number in itertools.count(1):
        snow.account.rights.drop(*KEY)
        if known:
            snow.commit()
            look(refresher)
        last = snow.commit()
        snow.api.faults = Faults(dies_at=number, before=before)
        died = look(refresher).error
        snow.api.faults = Faults()
        assert look(refresher).error is None
        assert shown(snow) == last
        assert snow.account.rights.objects[KEY].options["AUTO_REFRESH"]
        if died is None:
            break
    assert number > 3
