"""The exports of a deployment: what they delivered, the links that were mailed, and a run at once."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Self, get_args
from zoneinfo import ZoneInfo

from botocore.config import Config

from calve.config.deployment import Deployment
from calve.config.publishing import Export, Window
from calve.errors import CalveError, ConfigError
from calve.names import schedule_name
from cli.account import Account, outputs
from cli.config import Where, load_target
from cli.embedded.stack import Stack
from cli.lake import aws_errors
from lambdas.csv_export.window import previous
from lambdas.export_notify.mail import Manifest
from lambdas.links import Link, Links

# The function works for up to 15 minutes, and a second request would be a second export.
PATIENT = Config(connect_timeout=5, read_timeout=920, retries={"total_max_attempts": 1}, tcp_keepalive=True)
_DAYS = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Delivered:
    """The newest file of an export, if there is one. links: its mailed links that the deployment still has, by state."""

    export: str
    window: str | None = None
    rows: int | None = None
    complete: bool | None = None
    created_at: str | None = None
    links: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exports:
    """The exports of one deployment; `prefix`: where their files begin in the lake's bucket.

    links_table: empty if no export has a public link.
    """

    name: str
    account: Account
    function: str
    links_table: str
    bucket: str
    prefix: str

    @classmethod
    def find(cls, given: Where) -> Self:
        return cls.of(given.config, *load_target(given.config, given.env))

    @classmethod
    def of(cls, config: Path, deployment: Deployment, embedded: Stack | None) -> Self:
        """Of a configuration that is loaded. Raises NotDeployed; CalveError: AWS does not answer, or refuses."""
        account = Account.of(embedded, deployment.region)
        account.id()  # raises the fault of the credentials, with its fix
        first = "deploy them" if deployment.exports else f"add `exports:` to {config}, and deploy"
        fix = f"{first}: calve deploy"
        exports = outputs(account, f"{deployment.name}-exports", fix=fix)
        warehouse = outputs(account, f"{deployment.name}-lake", fix=fix)["Warehouse"]
        bucket, _, prefix = warehouse.removeprefix("s3://").partition("/")
        prefix = f"{prefix}/exports/" if prefix else "exports/"
        function, links = exports["ExportFunction"], exports.get("LinksTable", "")
        return cls(deployment.name, account, function, links, bucket, prefix)

    @property
    def links(self) -> Links:
        return Links(self.links_table, self.account.client("dynamodb"))

    def all_links(self) -> list[Link]:
        if not self.links_table:
            return []
        with aws_errors(f"the table {self.links_table}"):
            return list(self.links.all())

    def manifests(self, export: str | None) -> list[Manifest]:
        """The delivered files of one export, or of all, the newest first."""
        prefix = f"{self.prefix}{export}/" if export else self.prefix
        with aws_errors(f"the exports in {self.bucket}"):
            found = [self._manifest(key) for _, key in self._manifest_keys(prefix)]
        return sorted(found, key=lambda each: each.created_at, reverse=True)

    def delivered(self, names: Iterable[str]) -> list[Delivered]:
        """The newest file of each of the named exports, in this order."""
        states: defaultdict[str, Counter[str]] = defaultdict(Counter)
        now = datetime.now(UTC).timestamp()
        for link in self.all_links():
            states[link.export][state_of(link, now)] += 1
        found = []
        with aws_errors(f"the exports in {self.bucket}"):
            for name in names:
                keys = self._manifest_keys(f"{self.prefix}{name}/")
                _, newest = max(keys, default=(None, None))
                each = Delivered(name, links=dict(states[name]))
                if newest is not None:
                    file = self._manifest(newest)
                    created = file.created_at.isoformat(timespec="seconds")
                    each = Delivered(name, str(file.window), file.rows, file.complete, created, each.links)
                found.append(each)
        return found

    def _manifest_keys(self, prefix: str) -> Iterator[tuple[datetime, str]]:
        """When each manifest was written, and its key."""
        pages = self.account.client("s3").get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.bucket, Prefix=prefix):
            for each in page.get("Contents", []):
                if each["Key"].endswith("/manifest.json"):
                    yield each["LastModified"], each["Key"]

    def _manifest(self, key: str) -> Manifest:
        found = self.account.client("s3").get_object(Bucket=self.bucket, Key=key)
        return Manifest.parse(key, found["Body"].read().decode())

    def run(self, export: str, window: str | None, *, now: datetime) -> list[dict[str, Any]]:
        """Invoke the deployed function as its schedule does; return the result of each window."""
        scheduler = self.account.client("scheduler")
        with aws_errors(f"the schedule of the export {export}"):
            try:
                name = schedule_name(f"{self.name}-{export}")
                schedule = scheduler.get_schedule(Name=name, GroupName=self.name)
            except scheduler.exceptions.ResourceNotFoundException:
                raise ConfigError(
                    f'{self.name} has no deployed export "{export}"', fix="calve plan shows which there are"
                ) from None
        # The input of the schedule: the export as deployed, not as configured here.
        event: dict[str, Any] = json.loads(schedule["Target"]["Input"])
        Export.from_json(json.dumps(event["export"]))
        # To the microsecond: the function takes two events of one time for one event.
        event["scheduled_at"] = now.astimezone(UTC).isoformat(timespec="microseconds")
        if window is not None:
            event["window"] = bounds(window, ZoneInfo(event["export"]["time_zone"]), now)
        with aws_errors(f"the function {self.function}"):
            client = self.account.client("lambda", PATIENT)
            answer = client.invoke(FunctionName=self.function, Payload=json.dumps(event).encode())
        result = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise CalveError(
                f"the export {export} ended with {result.get('errorType')}: {result.get('errorMessage')}",
                fix=f"read the log of the function {self.function}",
            )
        outcomes: list[dict[str, Any]] = result
        return outcomes


def bounds(window: str, zone: ZoneInfo, now: datetime) -> dict[str, str]:
    """The first and last day of a window: `previous_week`, or `2026-11-02..2026-11-08`."""
    kinds: tuple[Window, ...] = get_args(Window)
    for kind in kinds:
        if window == kind:
            return previous(kind, now, zone).to_json()
    days = _DAYS.fullmatch(window)
    try:
        first, last = map(date.fromisoformat, days.groups()) if days else (date.max, date.min)
    except ValueError:
        first, last = date.max, date.min
    if last < first:
        fix = f"use FIRST..LAST (2026-11-02..2026-11-08), {', '.join(kinds)}"
        raise ConfigError(f'"{window}" is no window', fix=fix)
    start, end = (datetime.combine(day, time(), zone) for day in (first, last + timedelta(days=1)))
    return {"from": start.isoformat(), "to": end.isoformat()}


def state_of(link: Link, now: float) -> str:
    """`alive`, or why it no longer works."""
    if link.revoked:
        return "revoked"
    if now >= link.expires_at:
        return "expired"
    return "alive" if link.alive(now) else "used up"
