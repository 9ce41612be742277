"""The analyst's Monday morning, as it is deployed: from the topic to the file that a button gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.integration.engine import until
from tests.integration.exporting import NAME, Deployment, last_monday, midnight, said

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
    assert weekly.download(mail.link) == weekly.summary(*WEEK)

    (delivery,) = (
        each
        for each in weekly.calve("export", "list", "weekly_trades")["deliveries"]
        if each["from"] == WEEK[0].isoformat() and each["to"] == WEEK[1].isoformat()
    )
    assert (delivery["rows"], delivery["complete"], delivery["links_alive"]) == (14, True, 1)
    (link,) = (each for each in weekly.calve("link", "list")["links"] if each["id"] == mail.link_id)
    assert (link["manifest"], link["downloads"]) == (delivery["manifest"], 1)


def test_a_window_that_says_the_same_is_neither_written_nor_mailed_again(weekly: Deployment) -> None:
    assert weekly.run("weekly_trades", TUESDAY)["status"] == "written"
    mail = weekly.mail(said(TUESDAY, 1))
    before = weekly.files()
    assert weekly.run("weekly_trades", TUESDAY)["status"] == "unchanged"
    assert weekly.files() == before
    weekly.run("weekly_trades", WEDNESDAY)
    weekly.mail(said(WEDNESDAY, 1))
    assert weekly.mails_about(said(TUESDAY, 1)) == [mail]


def test_a_link_that_does_not_work_says_the_same_whatever_the_reason(weekly: Deployment) -> None:
    weekly.run("weekly_trades", THURSDAY)
    mail = weekly.mail(said(THURSDAY, 1))
    nobodys = weekly.get(f"{weekly.url}nobodys")
    assert nobodys.status == 404

    assert [weekly.press(mail.link).status for _ in range(2)] == [302, 302]
    assert weekly.press(mail.link) == weekly.get(mail.link) == nobodys

    weekly.run("hasty_trades", THURSDAY)
    mail = weekly.mail(f"Hasty trades, {said(THURSDAY, 1)}")
    altered = mail.link[:-1] + ("A" if mail.link[-1] != "A" else "B")
    for wrong in (altered, f"{mail.link}/2", f"{mail.link}/../{mail.link}", mail.link.partition(".")[0]):
        assert weekly.get(wrong) == weekly.press(wrong) == nobodys
    assert weekly.get(mail.link).status == 200
    assert weekly.calve("link", "revoke", mail.link_id)["revoked"] == [mail.link_id]
    assert weekly.press(mail.link) == weekly.get(mail.link) == nobodys


def test_a_table_that_lags_is_waited_for_and_then_exported_as_what_it_is(weekly: Deployment) -> None:
    today = datetime.now(UTC).date()
    assert weekly.run("hasty_trades", today)["status"] == "waiting"
    scheduler = weekly.client("scheduler")
    (again,) = scheduler.list_schedules(GroupName=NAME, NamePrefix="hasty_trades-again-")["Schedules"]
    assert again["Target"]["Arn"].endswith(f":function:{NAME}-export")
    mail = weekly.mail(f"Incomplete: Hasty trades, {said(today, 1)}")
    assert "Incomplete, ingested up to" in mail.text
    assert b"Incomplete" in weekly.get(mail.link).body
    until(lambda: not scheduler.list_schedules(GroupName=NAME, NamePrefix="hasty_trades-again-")["Schedules"])
