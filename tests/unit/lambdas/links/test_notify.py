import json
import re
from dataclasses import asdict, replace
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyAlreadyInProgressError
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from calve.config.publishing import topic_parameter
from calve.errors import Fatal
from lambdas.export_notify.mail import Manifest, by_console, subject
from tests.alarms import failed
from tests.announcements import assert_as_documented
from tests.unit.lambdas.links.conftest import BUCKET, EXPORT, FOLDER, REGION, RUN, URL, manifest


def links_in(text: str) -> list[str]:
    return re.findall(rf"{re.escape(URL)}(/[^\s\"<]+)", text)


def parts(*keys: str) -> list[dict[str, object]]:
    return [{"key": key, "rows": 1, "size_bytes": 1, "sha256": "a"} for key in keys]


def test_a_manifest_becomes_one_plain_mail_to_the_topic(world):
    world.notify(world.write(manifest()))
    [mail] = world.published()
    assert mail["Subject"] == "Weekly trades, 2-8 November 2026: 12,345 rows"
    text = mail["Message"]
    for said in (
        "Window: 2\N{EN DASH}8 November 2026 (Europe/Vilnius)",
        "Rows: 12,345",
        "Size: 1.2 MB",
        "ab" * 32,
        "Link expires: ",
        "Questions: data-team@example.com",
    ):
        assert said in text
    for unsaid in ("Incomplete", "Correction", "_kafka", "symbol", "ACME", "example.com\nann"):
        assert unsaid not in text
    [path] = links_in(text)
    assert world.request(path)["statusCode"] == 200


def test_others_hear_of_a_file_once_without_a_link_or_an_address(world):
    event = world.write(manifest(replace(EXPORT, channel="ses")))
    world.notify(event)
    world.notify(event)
    [(kind, detail)] = world.heard
    assert kind == "calve.export.created"
    assert_as_documented(kind, detail)
    assert (detail["deployment"], detail["rows"]) == ("trading", 12_345)
    assert "@" not in str(detail)
    assert URL not in str(detail)


def test_a_mail_that_fails_keeps_nobody_from_hearing(world):
    boto3.client("ssm").delete_parameter(Name=topic_parameter("trading", "weekly_trades"))
    with pytest.raises(Fatal, match="has no topic"):
        world.notify(world.write(manifest()))
    assert [kind for kind, _ in world.heard] == ["calve.export.created"]


def test_a_row_names_no_address_and_lives_as_long_as_its_link(world):
    world.notify(world.write(manifest(replace(EXPORT, channel="ses", link_days=3))))
    for row in world.rows():
        assert "@" not in str(row)
        assert int(row["expires_at"]["N"]) - int(row["created_at"]["N"]) == 3 * 86_400


def test_a_link_does_not_outlive_its_file(world):
    kept = replace(EXPORT, keep_days=2, link_days=7)
    world.notify(world.write(manifest(kept, created_at="2999-01-01T00:00:00+00:00")))
    assert int(world.rows()[0]["expires_at"]["N"]) < 32_503_680_000  # the link's own days come first here
    world.notify(world.write(manifest(kept, created_at="2000-01-01T00:00:00+00:00")))
    assert min(int(row["expires_at"]["N"]) for row in world.rows()) == 946_684_800 + 2 * 86_400


def test_by_ses_each_recipient_has_a_mail_and_a_link_of_their_own(world, ses_export):
    world.notify(world.write(manifest(ses_export)))
    mails = world.mailed()
    assert [mail.destinations["ToAddresses"] for mail in mails] == [["ann@example.com"], ["bob@example.com"]]
    paths = [set(links_in(str(mail.body))) for mail in mails]
    assert all(len(each) == 1 for each in paths)
    assert paths[0] != paths[1]
    assert len({row["recipient"]["S"] for row in world.rows()}) == 2


def test_by_ses_a_mail_has_both_forms_a_sender_and_an_address_for_answers(world, ses_export, monkeypatch):
    sent = []
    original = BaseClient._make_api_call

    def watch(self, operation, parameters):
        if operation == "SendEmail":
            sent.append(parameters)
        return original(self, operation, parameters)

    monkeypatch.setattr(BaseClient, "_make_api_call", watch)
    world.notify(world.write(manifest(ses_export)))
    mail = sent[0]
    assert (mail["FromEmailAddress"], mail["ReplyToAddresses"]) == (
        "calve@example.com",
        ["data-team@example.com"],
    )
    body = mail["Content"]["Simple"]["Body"]
    [path] = links_in(body["Text"]["Data"])
    assert links_in(body["Html"]["Data"]) == [path]
    assert "<script" not in body["Html"]["Data"]
    assert "http://" not in body["Html"]["Data"]


def test_each_part_has_its_link(world):
    world.notify(world.write(manifest(count=3)))
    text = world.published()[0]["Message"]
    paths = links_in(text)
    assert [path.rpartition("/")[2] for path in paths] == ["1", "2", "3"]
    assert [world.request(path, "POST")["statusCode"] for path in paths] == [302, 302, 302]
    assert len(world.rows()) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_a_private_link_is_an_address_of_the_console_and_needs_no_table_of_links(
    world, monkeypatch, logged, count
):
    for name in ("LINKS_TABLE", "LINK_KEYS_SECRET", "DOWNLOAD_URL"):
        monkeypatch.delenv(name)
    written = manifest(replace(EXPORT, link_kind="console"), count=count)
    world.notify(world.write(written))
    text = world.published()[0]["Message"]
    page = f"https://{REGION}.console.aws.amazon.com/s3/object/{BUCKET}?region={REGION}&prefix="
    keys = [part["key"] for part in written["parts"]]
    assert re.findall(r"https://\S+", text) == [page + key for key in keys]
    assert all(f"s3://{BUCKET}/{key}\n" in text for key in keys)
    assert f"has the policy trading-export-readers-{REGION}, then choose Download." in text
    assert "File kept until: Sunday, 7 February 2027, 06:00 (Europe/Vilnius)" in text
    assert world.rows() == []
    assert not [operation for service, operation in world.calls if service == "secretsmanager"]
    assert "mail.sent" in logged()


def test_a_public_link_of_a_function_that_has_none_is_refused_with_its_fix(world, monkeypatch):
    monkeypatch.delenv("LINKS_TABLE")
    with pytest.raises(Fatal, match="calve export run weekly_trades"):
        world.notify(world.write(manifest()))
    assert world.published() == []


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("cn-north-1", "cn-north-1.console.amazonaws.cn"),
        ("us-gov-west-1", "us-gov-west-1.console.amazonaws-us-gov.com"),
        ("us-east-1", "us-east-1.console.aws.amazon.com"),
    ],
)
def test_each_cloud_has_its_console_and_a_key_is_quoted(region, host):
    key = f"a b&c/{RUN}/x.csv"
    found = Manifest.parse(f"a b&c/{FOLDER}/manifest.json", json.dumps(manifest() | {"parts": parts(key)}))
    [address] = by_console(found, BUCKET, region, "policy").addresses
    assert urlsplit(address).hostname == host
    assert parse_qs(urlsplit(address).query)["prefix"] == [key]


def test_a_second_delivery_sends_no_second_mail(world, ses_export):
    event = world.write(manifest(ses_export))
    for _ in range(3):
        world.notify(event)
    assert len(world.mailed()) == 2
    assert len(world.rows()) == 2


def test_the_next_file_of_a_window_is_another_mail(world):
    world.notify(world.write(manifest()))
    world.notify(world.write(manifest(correction=True)))
    world.notify(world.write(manifest(redefined=True)))
    mails = world.published()
    assert [mail["Subject"] for mail in mails] == [
        "Weekly trades, 2-8 November 2026: 12,345 rows",
        "Correction: Weekly trades, 2-8 November 2026: 12,345 rows",
        "New settings: Weekly trades, 2-8 November 2026: 12,345 rows",
    ]
    assert "records arrived after" in mails[1]["Message"]
    assert "records arrived after" not in mails[2]["Message"]
    assert "settings of this export were changed" in mails[2]["Message"]


def test_one_recipient_that_fails_keeps_nobody_else_waiting_and_is_tried_again_alone(
    world, ses_export, monkeypatch
):
    original, refuse = BaseClient._make_api_call, [True]

    def flaky(self, operation, parameters):
        if operation == "SendEmail" and "ann@example.com" in str(parameters["Destination"]) and refuse[0]:
            raise ClientError({"Error": {"Code": "MessageRejected", "Message": "no"}}, operation)
        return original(self, operation, parameters)

    monkeypatch.setattr(BaseClient, "_make_api_call", flaky)
    event = world.write(manifest(ses_export))
    with pytest.raises(ClientError, match="MessageRejected"):
        world.notify(event)
    assert failed("export-mail-errors", "Notify")
    assert [mail.destinations["ToAddresses"] for mail in world.mailed()] == [["bob@example.com"]]
    refuse[0] = False
    world.notify(event)
    assert [mail.destinations["ToAddresses"][0] for mail in world.mailed()] == [
        "bob@example.com",
        "ann@example.com",
    ]


def test_an_incomplete_file_says_so_and_up_to_when(world):
    world.notify(world.write(manifest(complete=False, ingested_until="2026-11-08T20:15:00+00:00")))
    [mail] = world.published()
    assert mail["Subject"].startswith("Incomplete: ")
    assert "Incomplete, ingested up to Sunday, 8 November 2026, 22:15 (Europe/Vilnius)" in mail["Message"]


def test_a_window_by_kafkas_time_says_so(world):
    world.notify(world.write(manifest(replace(EXPORT, time_column="_kafka.timestamp"))))
    assert "reached Kafka (_kafka.timestamp)" in world.published()[0]["Message"]


def test_a_failed_export_tells_the_recipients_once(world):
    detail = {
        "export": asdict(EXPORT),
        "window": manifest()["window"],
        "reason": "the table trading.stock_trades\n does not exist",
        "final": True,
    }
    event = {"id": "e9", "source": "calve", "detail-type": "calve.export.failed", "detail": detail}
    world.notify(event)
    world.notify(event)
    [mail] = world.published()
    assert mail["Subject"] == "Failed: Weekly trades, 2-8 November 2026: no file"
    assert "Reason: the table trading.stock_trades does not exist" in mail["Message"]
    assert "It is not tried again by itself." in mail["Message"]
    assert links_in(mail["Message"]) == []
    assert world.rows() == []


def test_a_failure_that_lambda_tries_again_says_so(world):
    detail = {"export": asdict(EXPORT), "window": None, "reason": "an unexpected OSError", "final": False}
    world.notify({"id": "e7", "source": "calve", "detail-type": "calve.export.failed", "detail": detail})
    [mail] = world.published()
    assert "it is tried twice more within minutes" in mail["Message"]
    assert "not tried again" not in mail["Message"]


def test_a_failed_export_without_a_window_is_told_by_ses_too(world, ses_export):
    detail = {"export": asdict(ses_export), "window": None, "reason": "no table", "final": True}
    world.notify({"id": "e8", "source": "calve", "detail-type": "calve.export.failed", "detail": detail})
    assert [mail.subject for mail in world.mailed()] == ["Failed: Weekly trades: no file"] * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"parts": []},
        {"parts": parts("exports/other/1/0a1b2c3d/x.csv")},
        {"parts": parts(f"{FOLDER}/x.csv")},
        {"parts": parts(f"{FOLDER}/manifest.json")},
        {"parts": parts(f"{FOLDER}2/0a1b2c3d/x.csv")},
        {"parts": parts(f"{FOLDER}/../x.csv")},
        {"parts": parts(f"{FOLDER}/0a1b2c3d/../x.csv")},
        {"parts": parts(f"{FOLDER}/0a1b2c3d/..")},
        {"parts": parts(f"{FOLDER}/0a1b2c3d/")},
        {"parts": parts(f"{FOLDER}//x.csv")},
        {"parts": parts(f"{RUN}/deeper/x.csv")},
        {"parts": parts(f"{RUN}/%2e%2e%2fx.csv")},
        {"parts": parts(f"{RUN}/x.csv\n")},
        {"parts": parts(f"/{RUN}/x.csv")},
        {"parts": parts(f"{RUN}/x.csv", f"{FOLDER}/4e5f6071/x.csv")},
    ],
)
def test_a_manifest_that_is_none_of_ours_is_refused(world, changes):
    event = world.write(manifest() | {"parts": parts(f"{RUN}/x.csv")} | changes, files=False)
    with pytest.raises(Fatal):
        world.notify(event)
    assert world.rows() == []


def test_events_of_other_objects_and_kinds_are_refused(world):
    event = world.write(manifest(), key="tables/manifest.json")
    with pytest.raises(Fatal, match="no manifest"):
        world.notify(event)
    with pytest.raises(Fatal, match="not for this function"):
        world.notify(event | {"source": "aws.glue"})


def test_no_address_and_no_token_is_logged(world, ses_export, logged):
    world.notify(world.write(manifest(ses_export)))
    text = logged()
    paths = [path for mail in world.mailed() for path in links_in(str(mail.body))]
    assert paths
    assert text.count("mail.sent") == 2
    for secret in ("ann@example.com", "bob@example.com", *(path.strip("/") for path in paths)):
        assert secret not in text


@pytest.mark.parametrize("title", ["Weekly trades", "X" * 200, "Prek\u0117s\nir kiti \u2014 visi"])
@pytest.mark.parametrize("state", ["", "Incomplete"])
def test_a_subject_is_short_ascii_on_one_line_and_keeps_its_figures(title, state):
    made = subject(title, "28 December 2026 \N{EN DASH} 3 January 2027", "1,234,567,890 rows", state=state)
    assert made.isascii()
    assert made.isprintable()
    assert len(made) < 100
    assert made.endswith("28 December 2026 - 3 January 2027: 1,234,567,890 rows")
    assert made.startswith(state)


def test_a_death_between_mail_and_record_means_a_second_mail_and_two_links_that_work(world, monkeypatch):
    event = world.write(manifest())
    with monkeypatch.context() as dying:
        dying.setattr(DynamoDBPersistenceLayer, "_update_record", die)
        with pytest.raises(KeyboardInterrupt):
            world.notify(event)
    with pytest.raises(IdempotencyAlreadyInProgressError):
        world.notify(event)
    mails = world.published()
    assert len(mails) == 1
    dynamodb = world.client("dynamodb")
    for record in dynamodb.scan(TableName="idempotency")["Items"]:
        dynamodb.put_item(TableName="idempotency", Item=record | {"in_progress_expiration": {"N": "1"}})
    world.notify(event)
    mails += world.published()
    paths = [links_in(mail["Message"])[0] for mail in mails]
    assert len(set(paths)) == 2
    assert [world.request(path)["statusCode"] for path in paths] == [200, 200]


def die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
