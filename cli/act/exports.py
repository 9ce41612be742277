"""`calve export` and `calve link`: the deployed exports, what they delivered, and the links that were mailed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from calve.errors import CalveError, ConfigError
from cli.config import Common
from cli.console import ago
from cli.exports import Exports, state_of
from cli.lake import aws_errors
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
        state = state_of(each, now.timestamp())
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
