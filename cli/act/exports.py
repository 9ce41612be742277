"""`calve export` and `calve link`: the deployed exports, what they delivered, and the links that were mailed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Self, get_args
from zoneinfo import ZoneInfo

import typer
from botocore.config import Config

from calve.config.publishing import Export, Window
from calve.errors import CalveError, ConfigError
from cli.account import Account, outputs
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, load_target
from cli.console import Console, Output, OutputOption, ago
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
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Run a deployed export, as its schedule does.

    A window whose newest file says the same already gets no second one, and nobody a second mail.

    Example:
      calve export run weekly_trades --window 2026-11-02..2026-11-08
    """
    console = Console(output)
    outcomes = Exports.find(config, env).run(name, window, now=datetime.now(UTC))
    console.table("export", [_outcome(name, each) for each in outcomes])
    console.document({"export": name, "windows": outcomes})
    if failures := [str(each["failure"]) for each in outcomes if each["status"] == "failed"]:
        raise CalveError(
            f"the export {name} failed: {', '.join(failures)}", fix="the mail to its recipients says why"
        )


@export.command("list")
def listed(
    name: MaybeExportArgument = None,
    limit: LimitOption = 20,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List what was delivered, and which links work.

    Each file with its window, its rows, whether it is complete or a correction.

    Example:
      calve export list weekly_trades
    """
    console = Console(output)
    exports = Exports.find(config, env)
    now = datetime.now(UTC)
    with aws_errors(f"the table {exports.links_table}"):
        alive = [link.manifest for link in exports.links.all() if link.alive(now.timestamp())]
    found = exports.manifests(name)[:limit]
    console.table("deliveries", [_delivery(each, alive.count(each.key), now) for each in found])
    console.document({"deliveries": [_document(each, alive.count(each.key)) for each in found]})


def _outcome(name: str, outcome: dict[str, Any]) -> dict[str, object]:
    window = outcome.get("window") or {}
    more = ("rows", "complete", "correction", "again_at", "failure")
    return {
        "export": name,
        "from": window.get("from"),
        "to": window.get("to"),
        "state": outcome["status"],
        **{key: outcome.get(key) for key in more},
    }


def _delivery(manifest: Manifest, links: int, now: datetime) -> dict[str, object]:
    return {
        "export": manifest.export.name,
        "window": str(manifest.window),
        "rows": manifest.rows,
        "parts": len(manifest.parts),
        "complete": manifest.complete,
        "correction": manifest.correction,
        "created": ago(manifest.created_at, now),
        "links_alive": links,
    }


def _document(manifest: Manifest, links: int) -> dict[str, object]:
    return {
        "export": manifest.export.name,
        "from": manifest.window.start.isoformat(),
        "to": manifest.window.end.isoformat(),
        "rows": manifest.rows,
        "files": [part.key for part in manifest.parts],
        "size_bytes": sum(part.size_bytes for part in manifest.parts),
        "complete": manifest.complete,
        "correction": manifest.correction,
        "created_at": manifest.created_at.isoformat(),
        "manifest": manifest.key,
        "links_alive": links,
    }


# The function works for up to 15 minutes, and a second request would be a second export.
PATIENT = Config(connect_timeout=5, read_timeout=920, retries={"total_max_attempts": 1}, tcp_keepalive=True)
_DAYS = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Exports:
    """The exports of one deployment; `prefix`: where their files begin in the lake's bucket."""

    name: str
    account: Account
    function: str
    links_table: str
    bucket: str
    prefix: str

    @classmethod
    def find(cls, config: Path, env: str | None) -> Self:
        """The exports of a configuration.

        Raises:
            CalveError: they are not deployed.
        """
        deployment, embedded = load_target(config, env)
        account = Account.of(embedded, deployment.region)
        account.id()  # says what is wrong with the credentials, if anything is
        fix = "calve deploy" if embedded else "calve plan, then npx cdk deploy --all"
        fix = (
            f"deploy them: {fix}" if deployment.exports else f"add `exports:` to {config}, and deploy: {fix}"
        )
        exports = outputs(account, f"{deployment.name}-exports", fix=fix)
        bucket, _, prefix = (
            outputs(account, f"{deployment.name}-lake", fix=fix)["Warehouse"]
            .removeprefix("s3://")
            .partition("/")
        )
        return cls(
            name=deployment.name,
            account=account,
            function=exports["ExportFunction"],
            links_table=exports["LinksTable"],
            bucket=bucket,
            prefix=f"{prefix}/exports/" if prefix else "exports/",
        )

    @property
    def links(self) -> Links:
        return Links(self.links_table, self.account.client("dynamodb"))

    def manifests(self, export: str | None = None) -> list[Manifest]:
        """The delivered files, newest first."""
        s3, found = self.account.client("s3"), []
        with aws_errors(f"the exports in {self.bucket}"):
            pages = s3.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=f"{self.prefix}{export}/" if export else self.prefix
            )
            for key in (each["Key"] for page in pages for each in page.get("Contents", [])):
                if key.endswith("/manifest.json"):
                    text = s3.get_object(Bucket=self.bucket, Key=key)["Body"].read().decode()
                    found.append(Manifest.parse(key, text))
        return sorted(found, key=lambda each: each.created_at, reverse=True)

    def run(self, export: str, window: str | None, *, now: datetime) -> list[dict[str, Any]]:
        """Invoke the deployed function as its schedule does; return the result of each window.

        Raises:
            CalveError: there is no such export, or the function ended with an error.
        """
        event = self._scheduled(export)
        # To the microsecond: the function takes two events of one time for one event.
        event["scheduled_at"] = now.astimezone(UTC).isoformat(timespec="microseconds")
        if window is not None:
            event["window"] = bounds(window, ZoneInfo(event["export"]["time_zone"]), now)
        with aws_errors(f"the function {self.function}"):
            answer = self.account.client("lambda", PATIENT).invoke(
                FunctionName=self.function, Payload=json.dumps(event).encode()
            )
        result = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise CalveError(
                f"the export {export} ended with {result.get('errorType')}: {result.get('errorMessage')}",
                fix=f"read the log of the function {self.function}",
            )
        outcomes: list[dict[str, Any]] = result
        return outcomes

    def _scheduled(self, export: str) -> dict[str, Any]:
        """The input that an export's schedule sends: the export as deployed, not as configured here."""
        scheduler = self.account.client("scheduler")
        with aws_errors(f"the schedule of the export {export}"):
            try:
                schedule = scheduler.get_schedule(Name=f"{self.name}-{export}", GroupName=self.name)
            except scheduler.exceptions.ResourceNotFoundException:
                raise ConfigError(
                    f'{self.name} has no deployed export "{export}"', fix="calve plan shows which there are"
                ) from None
        event: dict[str, Any] = json.loads(schedule["Target"]["Input"])
        Export.from_json(json.dumps(event["export"]))
        return event


def bounds(window: str, zone: ZoneInfo, now: datetime) -> dict[str, str]:
    """The first and last day of a window: `previous_week`, or `2026-11-02..2026-11-08`.

    Raises:
        ConfigError: it is neither.
    """
    for kind in get_args(Window):
        if window == kind:
            return previous(kind, now, zone).to_json()
    days = _DAYS.fullmatch(window)
    try:
        first, last = map(date.fromisoformat, days.groups()) if days else (date.max, date.min)
    except ValueError:
        first, last = date.max, date.min
    if last < first:
        raise ConfigError(
            f'"{window}" is no window',
            fix=f"use FIRST..LAST (2026-11-02..2026-11-08), {', '.join(get_args(Window))}",
        )
    start, end = (datetime.combine(day, time(), zone) for day in (first, last + timedelta(days=1)))
    return {"from": start.isoformat(), "to": end.isoformat()}


link = typer.Typer(help="List the links that were mailed; close them.", no_args_is_help=True)

LinkArgument = Annotated[str | None, typer.Argument(metavar="ID", help="The link's id, or how logs name it.")]
ExportOption = Annotated[str | None, typer.Option("--export", "-x", help="The links of one export.")]


@link.command("list")
def listed_links(
    export: ExportOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the links that were mailed, newest first.

    An id opens nothing without its signature.

    Example:
      calve link list --export weekly_trades
    """
    now = datetime.now(UTC)
    console = Console(output)
    found = [each for each in _all(config, env) if export in (None, each.export)]
    found.sort(key=lambda each: each.created_at, reverse=True)
    console.table("links", [_link_line(each, now) for each in found])
    console.document({"links": [_link_document(each, now.timestamp()) for each in found]})


@link.command()
def revoke(
    id: LinkArgument = None,
    export: ExportOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
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
    exports = Exports.find(config, env)
    with aws_errors(f"the table {exports.links_table}"):
        found = [
            each.id
            for each in exports.links.all()
            if each.export == export or (id is not None and id in (each.id, reference(each.id)))
        ]
        if not found:
            raise CalveError(f"there is no link of {export or id}", fix="calve link list")
        revoked = [each for each in found if exports.links.revoke(each)]
    console = Console(output)
    console.table("revoked", [{"link": each} for each in revoked])
    console.document({"revoked": revoked})


def state(link: Link, now: float) -> str:
    """`alive`, or why it no longer works."""
    if link.revoked:
        return "revoked"
    if now >= link.expires_at:
        return "expired"
    return "alive" if link.alive(now) else "used up"


def _all(config: ConfigOption, env: str | None) -> list[Link]:
    exports = Exports.find(config, env)
    with aws_errors(f"the table {exports.links_table}"):
        return list(exports.links.all())


def _link_line(link: Link, now: datetime) -> dict[str, object]:
    return {
        "link": link.id,
        "export": link.export,
        "window": link.window,
        "state": state(link, now.timestamp()),
        "downloads": f"{link.downloads} of {link.max_downloads}",
        "mailed": ago(datetime.fromtimestamp(link.created_at, UTC), now),
        "expires": ago(datetime.fromtimestamp(link.expires_at, UTC), now),
    }


def _link_document(link: Link, now: float) -> dict[str, object]:
    return {
        "id": link.id,
        "log_name": reference(link.id),
        "export": link.export,
        "manifest": link.manifest,
        "recipient": link.recipient,
        "state": state(link, now),
        "downloads": link.downloads,
        "max_downloads": link.max_downloads,
        "created_at": datetime.fromtimestamp(link.created_at, UTC).isoformat(),
        "expires_at": datetime.fromtimestamp(link.expires_at, UTC).isoformat(),
    }
