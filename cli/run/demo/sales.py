"""The demo's second part: `examples/sales_channel`, from events with personal data to the analyst's mail on Monday morning.

The deployed schedule fires, a mail comes, and its button gives a file.
"""

from __future__ import annotations

import csv
import json
import runpy
import time
import uuid
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from pyiceberg.table import Table

from calve.errors import CalveError
from calve.names import SYSTEM_COLUMN
from cli import lake
from cli.config import load_jobs, table_named
from cli.console import Console
from cli.embedded import aws
from cli.embedded.cdk import App
from cli.embedded.layout import CHECKOUT, Layout
from cli.embedded.stack import Stack
from cli.kafka import Cluster
from cli.run.demo.checks import PYICEBERG, Count, ingested, opened, proof, unproved, verified
from cli.run.stack import LINK, kept, lines_behind
from lambdas.csv_export.window import previous

PATIENCE_S = 60
EXAMPLE = CHECKOUT / "examples" / "sales_channel"
TOPIC, CLEAN, RAW, SALES = "sales_channel", "sales_clean", "sales_raw", "sales"
NAME, EXPORT, ZONE = "sales", "weekly_sales", "Europe/Vilnius"
SECRET = "sales/masking"  # noqa: S105 the name of one
EVENTS = 1_000
PERSONAL = ("customer.name", "customer.email", "customer.birth_date", "payment.card")


def last_week(now: datetime, zone: str = "UTC") -> tuple[datetime, datetime]:
    """The window of an export whose schedule fires now."""
    week = previous("previous_week", now, ZoneInfo(zone))
    return week.start, week.end


class Sales:
    """One run of the example; its events come after those of earlier runs on the same stack."""

    def __init__(self, stack: Stack, details: Console) -> None:
        self._stack, self._details = stack, details
        [self._job] = load_jobs(EXAMPLE / "calve.yaml")
        self._catalog = lake.open_catalog(self._job.lake)
        self._week = last_week(datetime.now(UTC), ZONE)
        self._start = self._week[0] + timedelta(hours=8)

    @cached_property
    def _events(self) -> list[dict[str, Any]]:
        made = _script("sales")["events"](EVENTS, start=self._start, first=self._before[TOPIC])
        return list(made)

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """The table's rows of these events, with `_kafka`."""
        numbers = {each["event_id"] for each in self._events}
        rows = self._table().scan().to_arrow().to_pylist()
        return [row for row in rows if row["event_id"] in numbers]

    def deploy(self) -> None:
        secrets = self._client("secretsmanager")
        if SECRET not in {each["Name"] for each in secrets.list_secrets()["SecretList"]}:
            secrets.create_secret(Name=SECRET, SecretString=(EXAMPLE / "masking.json").read_text())
        app = App(self._stack, EXAMPLE / "calve.yaml", "aws", title="deploying sales")
        app.deploy(self._details.progress())

    def produce(self) -> None:
        self._before = self._ends()
        _script("generate")["generate"](
            *(TOPIC, self._stack.bootstrap_servers, self._stack.registry_url, EVENTS),
            start=self._start,
            first=self._before[TOPIC],
        )

    def ingest(self) -> None:
        ingested(self._stack, f"{NAME}-main", self._details, 2 * EVENTS)

    def masked(self) -> list[dict[str, object]]:
        """What an event has of a person, and what its row has of that; event and rows also whole, as details."""
        event = next(each for each in self._events if _tells_much(each))
        lines = [
            f"{name}: {json.dumps(part, default=str, ensure_ascii=False)}" for name, part in event.items()
        ]
        self._details.quote(TOPIC, "\n".join(lines))
        rows = [row for row in self._rows if row["event_id"] == event["event_id"]]
        self._details.table("row", [{name: _short(each) for name, each in row.items()} for row in rows])
        found: list[dict[str, object]] = []
        for path in PERSONAL:
            value = event
            for part in path.split("."):
                value = value[part]
            in_row = _short(rows[0].get(path.replace(".", "_"), "(no column)"))
            found.append({"field": path, "in the topic": value, "in the table": in_row})
        return found

    def prove(self) -> tuple[list[dict[str, object]], list[str]]:
        """A line for each table, and a sentence for each difference.

        Rows are compared with plain Python's result for the events, and searched for personal values.
        """
        proved = verified(self._catalog, self._job, self._details)
        expected = list(_script("expected")["rows"](self._events))
        same = sum(row in expected for row in map(_plain, self._rows))
        written = self._ends()[CLEAN] - self._before[CLEAN]
        texts = repr(self._rows)
        leaked = sum(value in texts for value in _personal(self._events))
        figures = [
            ("rows as plain Python has them", len(expected), same),
            ("rows in all", len(expected), len(self._rows)),
            (f"records of {CLEAN}", len(expected), written),
            ("names, e-mails, cards, addresses found in rows", 0, leaked),
        ]
        counts = [Count(SALES, name, wanted, {PYICEBERG: found}) for name, wanted, found in figures]
        self._details.table("count", [each.line([PYICEBERG]) for each in counts])
        rows = {RAW: EVENTS, SALES: len(expected)}
        lines = [proof(name, EVENTS, count, 0, proved[name], counts) for name, count in rows.items()]
        return lines, unproved(proved) + [each.differs for each in counts if each.differs]

    def mailed(self) -> tuple[str, list[str], list[str]]:
        """The subject of the mail after `fire`, the lines of the file behind its link, and a sentence for each fault."""
        with self._details.progress().task(f"exporting {EXPORT}"):
            mail = self._mail()
        subject, text = mail["Subject"], mail.get_content()
        self._details.quote(subject, text)
        file = Layout(self._stack.root).demo / f"{EXPORT}.eml"
        file.write_bytes(bytes(mail))
        found = LINK.search(text)
        if found is None:
            raise CalveError("the mail has no link")
        page = aws.reachable(found[0], self._stack.aws_endpoint)
        self._details.say(f"The mail is in {file}. The emulator answers for its link at {page}")
        lines = lines_behind(page)
        self._details.quote(f"{EXPORT}.csv", "\n".join(lines))
        return subject, lines, self._wrong_in(lines, "\n".join([subject, text, *lines]))

    def _client(self, service: str) -> Any:
        return aws.client(service, self._stack.aws_endpoint)

    def fire(self) -> None:
        """Fire the Monday schedule now."""
        self._mails = len(kept(self._stack))
        scheduler = self._client("scheduler")
        made = scheduler.get_schedule(Name=f"{NAME}-{EXPORT}", GroupName=NAME)
        scheduler.create_schedule(
            Name=f"demo-{uuid.uuid4().hex[:8]}",
            GroupName=NAME,
            ScheduleExpression=f"at({datetime.now(UTC) + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S})",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=made["Target"],
            ActionAfterCompletion="DELETE",
        )

    def _mail(self) -> EmailMessage:
        """The first mail after those that were there."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if mails := kept(self._stack)[self._mails :]:
                return mails[0]
            time.sleep(0.2)
        raise CalveError(
            f"no mail of {EXPORT} came in {PATIENCE_S} s",
            fix="calve export list says what was delivered before: a file that says the same is not mailed again",
        )

    def _wrong_in(self, lines: list[str], sent: str) -> list[str]:
        """Counts that differ between file and table, and personal values in all that was sent."""
        since, until = self._week
        rows = self._table().scan(selected_fields=("created_at", "items_quantity")).to_arrow()
        of_week = [
            row["items_quantity"] or 0 for row in rows.to_pylist() if since <= row["created_at"] < until
        ]
        in_file, in_table = sum(int(row["items"] or 0) for row in csv.DictReader(lines)), sum(of_week)
        leaked = sum(value in sent for value in _personal(self._events))
        wrong = [f"{leaked} personal values are in the mail or its file"] if leaked else []
        if in_file != in_table:
            wrong.append(f"the CSV counts {in_file:,} items of last week, the table has {in_table:,}")
        return wrong

    def _table(self) -> Table:
        _, table = table_named([self._job], SALES)
        return opened(self._catalog, self._job.table_name(table))

    def _ends(self) -> dict[str, int]:
        found = Cluster(self._job.kafka, self._job.lake.region).topics({TOPIC, CLEAN})
        return {name: sum(found[name].end.values()) if name in found else 0 for name in (TOPIC, CLEAN)}


def _tells_much(event: dict[str, Any]) -> bool:
    whole = event["delivery"] and event["payment"]["card"] and all(event["customer"].values())
    return bool(whole) and len(event["items"]) == 2


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row of PyIceberg's in the form of the example's `expected`."""
    return {
        name: dict(value) if name == "attributes" else value
        for name, value in row.items()
        if name != SYSTEM_COLUMN
    }


def _personal(events: list[dict[str, Any]]) -> set[str]:
    """Every personal text of the events, as produced."""
    found = set()
    for each in events:
        customer = each["customer"]
        found |= {customer["name"], customer["email"], customer["phone"], each["payment"]["card"]}
        found.add((each["delivery"] or {}).get("address"))
    return found - {None}


def _short(value: object) -> object:
    """A long text, cut: the first characters of a token identify it."""
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 24 else value


def _script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE / f"{name}.py"))
