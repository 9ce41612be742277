"""The analyst's Monday morning, as it is deployed: from the topic to the file that a button gives."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta

import pytest

from tests.integration.support.engine import until
from tests.integration.support.exporting import (
    FUNCTION,
    NAME,
    Deployment,
    canary_day,
    last_monday,
    midnight,
    said,
)
from tests.integration.support.functions import Log
from tests.integration.support.records.trades import CANARY

MONDAY = last_monday()
TUESDAY, WEDNESDAY, THURSDAY = (MONDAY + timedelta(days=n) for n in (1, 2, 3))
WEEK = (midnight(MONDAY), midnight(MONDAY + timedelta(days=7)))


def test_a_schedule_mails_last_week_and_the_button_gives_what_the_topic_says(weekly: Deployment) -> None:
    weekly.fire("weekly_trades")
    mail = weekly.mail(f"Weekly trades, {said(MONDAY, 7)}: 14 rows")
    assert "Incomplete" not in mail.text

    for _ in range(3):  # a mail scanner, another one, and the analyst
        page = weekly.get(mail.link)
        assert page.status == 200
    assert b"Complete." in page.body
    assert weekly.download(mail.link) == weekly.trades.summary(*WEEK)

    (delivery,) = (
        each
        for each in weekly.calve("export", "list", "weekly_trades")["deliveries"]
        if each["from"] == WEEK[0].isoformat() and each["to"] == WEEK[1].isoformat()
    )
    assert (delivery["rows"], delivery["complete"], delivery["links_alive"]) == (14, True, 1)
    (link,) = (each for each in weekly.calve("link", "list")["links"] if each["id"] == mail.link_id)
    assert (link["manifest"], link["downloads"]) == (delivery["manifest"], 1)
    newest = weekly.calve("export", "list", "weekly_trades")["deliveries"][0]
    (export,) = (each for each in weekly.calve("status")["exports"] if each["export"] == "weekly_trades")
    assert (export["rows"], export["created_at"]) == (newest["rows"], newest["created_at"][:19] + "+00:00")
    assert export["links"]["alive"] >= newest["links_alive"] >= 1


@pytest.mark.parametrize(("times", "after"), [(1, MONDAY), pytest.param(2, THURSDAY, marks=pytest.mark.full)])
def test_a_schedule_that_fires_again_writes_and_mails_nothing_more(
    weekly: Deployment, times: int, after: date
) -> None:
    first = Log(weekly, FUNCTION)
    weekly.fire("weekly_trades")
    until(lambda: first.holding('"ExportRuns":['))  # its mail may be of an earlier test
    mail = weekly.mail(said(MONDAY, 7))
    log, before = Log(weekly, FUNCTION), weekly.files()
    weekly.fire("weekly_trades", times)
    until(lambda: len(log.holding('"ExportRuns":[')) == times)
    windows = [json.loads(line)["window"] for line in log.holding('"message":"export.')]
    assert [window["from"] for window in windows].count(WEEK[0].isoformat()) == 1
    assert log.holding("export.written") == []
    assert weekly.files() == before
    weekly.run("weekly_trades", after)
    weekly.mail(said(after, 1))
    assert weekly.mails_about(said(MONDAY, 7)) == [mail]


def test_a_delivery_leaves_no_value_address_or_token_in_a_log(weekly: Deployment) -> None:
    logs = [Log(weekly, part) for part in (FUNCTION, "Notify", "Download")]
    weekly.run("hasty_trades", canary_day())
    mail = weekly.mail(f"Hasty trades, {said(canary_day(), 1)}")
    assert weekly.get(mail.link).status == 200
    _, row = weekly.download(mail.link)
    assert sorted(row) == sorted(map(str, CANARY.values()))

    until(lambda: logs[-1].holding("link.download"))
    text = "\n".join(line for log in logs for line in log.lines())
    for message in ("export.written", "mail.sent", "link.page", "link.download"):
        assert f'"message":"{message}"' in text
    payload, mac = mail.link.rpartition("/")[2].split(".")
    for secret in (*row, payload, mac, mail.link_id, "example.com", "X-Amz-", "Traceback"):
        assert secret not in text


def test_a_window_that_says_the_same_is_neither_written_nor_mailed_again(weekly: Deployment) -> None:
    assert weekly.run("weekly_trades", TUESDAY)["status"] == "written"
    mail = weekly.mail(said(TUESDAY, 1))
    before = weekly.files()
    assert weekly.run("weekly_trades", TUESDAY)["status"] == "unchanged"
    assert weekly.files() == before
    weekly.run("weekly_trades", WEDNESDAY)
    weekly.mail(said(WEDNESDAY, 1))
    assert weekly.mails_about(said(TUESDAY, 1)) == [mail]


def test_a_table_that_lags_is_waited_for_and_then_exported_as_what_it_is(weekly: Deployment) -> None:
    weekly.warm()
    today = datetime.now(UTC).date()
    assert weekly.run("hasty_trades", today)["status"] == "waiting"
    scheduler = weekly.client("scheduler")
    (again,) = scheduler.list_schedules(GroupName=NAME, NamePrefix="hasty_trades-again-")["Schedules"]
    assert again["Target"]["Arn"].endswith(f":function:{NAME}-export")
    mail = weekly.mail(f"Incomplete: Hasty trades, {said(today, 1)}")
    assert "Incomplete, ingested up to" in mail.text
    assert b"Incomplete" in weekly.get(mail.link).body
    until(lambda: not scheduler.list_schedules(GroupName=NAME, NamePrefix="hasty_trades-again-")["Schedules"])
