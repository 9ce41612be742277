"""`calve export` and `calve link`: the deployed exports, what they delivered, and the links that were mailed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Self, get_args
from zoneinfo import ZoneInfo

import typer
from botocore.config import Config

from calve.config.publishing import Export, Window
from calve.errors import CalveError, ConfigError
from calve.names import schedule_name
from cli.account import Account, outputs
from cli.config import Common, load_target
from cli.console import ago
from cli.lake import aws_errors
from lambdas.csv_export.window import previous
from lambdas.export_notify.mail import Manifest
from lambdas.links import Link, Links
from lambdas.tokens import reference

export = typer.Typer(help="Run a deployed export now; list what was delivered.", no_args_is_help=True)

ExportArgument = Annotated[str, typer.Argument(metavar="NAME", help="The export.")]
MaybeExportArgument = Annotated[str | None, typer.Argument(metavar="NAME", help="One export alone.")]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        "-w",
        help="FIRST..LAST, both days included, or previous_day, previous_week, previous_month; "
        "without it the export's own, and the earlier ones are looked at again.",
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, newest first.")]


@export.command()
def run(
    name: ExportArgument,
    window: WindowOption = None,
    *,
    given: Common,
) -> None:
    """Run a deployed export, as its schedule does.

    A window whose newest file says the same already gets no second one, and nobody a second mail.

    Example:
      calve export run weekly_trades --window 2026-11-02..2026-11-08
    """
    console = given.console
    outcomes = Exports.find(given).run(name, window, now=datetime.now(UTC))
    rows = []
    for each in outcomes:
        of = each.get("window") or {}
        row = {"export": name, "from": of.get("from"), "to": of.get("to"), "state": each["status"]}
        more = ("rows", "complete", "correction", "again_at", "failure")
        rows.append(row | {key: each.get(key) for key in more})
    console.table("export", rows)
    console.document({"export": name, "windows": outcomes})
    if failures := [str(each["failure"]) for each in outcomes if each["status"] == "failed"]:
        raise CalveError(
            f"the export {name} failed: {', '.join(failures)}", fix="the mail to its recipients says why"
        )


@export.command("list")
def listed(
    name: MaybeExportArgument = None,
    limit: LimitOption = 20,
    *,
    given: Common,
) -> None:
    """List what was delivered, and which links work.

    Each file with its window, its rows, whether it is complete or a correction.

    Example:
      calve export list weekly_trades
    """
    console, now = given.console, datetime.now(UTC)
    exports = Exports.find(given)
    alive = [link.manifest for link in exports.all_links() if link.alive(now.timestamp())]
    found = exports.manifests(name)[:limit]
    rows = [
        {
            "export": each.export.name,
            "window": str(each.window),
            "rows": each.rows,
            "parts": len(each.parts),
            "complete": each.complete,
            "correction": each.correction,
            "created": ago(each.created_at, now),
            "links_alive": alive.count(each.key),
        }
        for each in found
    ]
    deliveries = [
        {
            "export": each.export.name,
            "from": each.window.start.isoformat(),
            "to": each.window.end.isoformat(),
            "rows": each.rows,
            "files": [part.key for part in each.parts],
            "size_bytes": sum(part.size_bytes for part in each.parts),
            "complete": each.complete,
            "correction": each.correction,
            "created_at": each.created_at.isoformat(),
            "manifest": each.key,
            "links_alive": alive.count(each.key),
        }
        for each in found
    ]
    console.table("deliveries", rows)
    console.document({"deliveries": deliveries})


# The function works for up to 15 minutes, and a second request would be a second export.
PATIENT = Config(connect_timeout=5, read_timeout=920, retries={"total_max_attempts": 1}, tcp_keepalive=True)
_DAYS = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)", re.ASCII)


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
    def find(cls, given: Common) -> Self:
        deployment, embedded = load_target(given.config, given.env)
        account = Account.of(embedded, deployment.region)
        account.id()  # raises the fault of the credentials, with its fix
        first = "deploy them" if deployment.exports else f"add `exports:` to {given.config}, and deploy"
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
        s3, found = self.account.client("s3"), []
        prefix = f"{self.prefix}{export}/" if export else self.prefix
        with aws_errors(f"the exports in {self.bucket}"):
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
            for key in (each["Key"] for page in pages for each in page.get("Contents", [])):
                if key.endswith("/manifest.json"):
                    text = s3.get_object(Bucket=self.bucket, Key=key)["Body"].read().decode()
                    found.append(Manifest.parse(key, text))
        return sorted(found, key=lambda each: each.created_at, reverse=True)

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


link = typer.Typer(help="List the links that were mailed; close them.", no_args_is_help=True)

LinkArgument = Annotated[str | None, typer.Argument(metavar="ID", help="The link's id, or how logs name it.")]
ExportOption = Annotated[str | None, typer.Option("--export", "-x", help="The links of one export.")]


@link.command("list")
def listed_links(export: ExportOption = None, *, given: Common) -> None:
    """List the links that were mailed, newest first.

    An id opens nothing without its signature.

    Example:
      calve link list --export weekly_trades
    """
    console, now = given.console, datetime.now(UTC)
    found = [each for each in Exports.find(given).all_links() if export in (None, each.export)]
    found.sort(key=lambda each: each.created_at, reverse=True)
    rows, documents = [], []
    for each in found:
        state = _state(each, now.timestamp())
        created, expires = (datetime.fromtimestamp(at, UTC) for at in (each.created_at, each.expires_at))
        rows.append(
            {
                "link": each.id,
                "export": each.export,
                "window": each.window,
                "state": state,
                "downloads": f"{each.downloads} of {each.max_downloads}",
                "mailed": ago(created, now),
                "expires": ago(expires, now),
            }
        )
        documents.append(
            {
                "id": each.id,
                "log_name": reference(each.id),
                "export": each.export,
                "manifest": each.manifest,
                "recipient": each.recipient,
                "state": state,
                "downloads": each.downloads,
                "max_downloads": each.max_downloads,
                "created_at": created.isoformat(),
                "expires_at": expires.isoformat(),
            }
        )
    console.table("links", rows)
    console.document({"links": documents})


@link.command()
def revoke(
    id: LinkArgument = None,
    export: ExportOption = None,
    *,
    given: Common,
) -> None:
    """Close a link, or all of an export, at once and for good.

    A download that has begun goes on: its address lives a minute.

    Examples:
      calve link revoke AdeLMI__nE812b3FBwJbG0
      calve link revoke --export weekly_trades
    """
    if (id is None) == (export is None):
        raise ConfigError(
            "which links?",
            fix="calve link revoke ID, or calve link revoke --export NAME; see calve link list",
        )
    exports = Exports.find(given)
    links = exports.all_links()
    found = [each.id for each in links if each.export == export or id in (each.id, reference(each.id))]
    if not found:
        raise CalveError(f"there is no link of {export or id}", fix="calve link list")
    with aws_errors(f"the table {exports.links_table}"):
        revoked = [each for each in found if exports.links.revoke(each)]
    console = given.console
    console.table("revoked", [{"link": each} for each in revoked])
    console.document({"revoked": revoked})


def _state(link: Link, now: float) -> str:
    """`alive`, or why it no longer works."""
    if link.revoked:
        return "revoked"
    if now >= link.expires_at:
        return "expired"
    return "alive" if link.alive(now) else "used up"
