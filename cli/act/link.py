"""List the links that were mailed; close them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from calve.errors import CalveError, ConfigError
from cli.act.exports import Exports
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption
from cli.console import Console, Output, OutputOption, duration
from cli.lake import aws_errors
from lambdas.links import Link
from lambdas.tokens import reference

link = typer.Typer(help=__doc__, no_args_is_help=True)

LinkArgument = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The link's id, or how logs name it.", show_default=False),
]
ExportOption = Annotated[
    str | None, typer.Option("--export", "-x", help="The links of one export.", show_default=False)
]


@link.command("list")
def listed(
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
    console.table("links", [_line(each, now.timestamp()) for each in found])
    console.document({"links": [_document(each, now.timestamp()) for each in found]})


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


def _line(link: Link, now: float) -> dict[str, object]:
    left = link.expires_at - now
    return {
        "link": link.id,
        "export": link.export,
        "window": link.window,
        "state": state(link, now),
        "downloads": f"{link.downloads} of {link.max_downloads}",
        "mailed": f"{duration(now - link.created_at)} ago",
        "expires": f"in {duration(left)}" if left > 0 else f"{duration(-left)} ago",
    }


def _document(link: Link, now: float) -> dict[str, object]:
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
