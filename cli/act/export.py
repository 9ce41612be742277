"""Run a deployed export now; list what was delivered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.errors import CalveError
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption
from cli.console import Console, Output, OutputOption, duration

if TYPE_CHECKING:
    from lambdas.export_notify.mail import Manifest

export = typer.Typer(help=__doc__, no_args_is_help=True)

ExportArgument = Annotated[str, typer.Argument(metavar="NAME", help="The export.", show_default=False)]
MaybeExportArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="One export alone.", show_default=False)
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        "-w",
        help="FIRST..LAST, both days included, or previous_day, previous_week, previous_month; "
        "without it the export's own, and the earlier ones are looked at again.",
        show_default=False,
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
    from cli.act.exports import Exports

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
    from cli.act.exports import Exports
    from cli.lake import aws_errors

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
    return {
        "export": name,
        "from": window.get("from"),
        "to": window.get("to"),
        "state": outcome["status"],
        "rows": outcome.get("rows"),
        "complete": outcome.get("complete"),
        "correction": outcome.get("correction"),
        "again_at": outcome.get("again_at"),
        "failure": outcome.get("failure"),
    }


def _delivery(manifest: Manifest, links: int, now: datetime) -> dict[str, object]:
    return {
        "export": manifest.export.name,
        "window": str(manifest.window),
        "rows": manifest.rows,
        "parts": len(manifest.parts),
        "complete": manifest.complete,
        "correction": manifest.correction,
        "created": f"{duration((now - manifest.created_at).total_seconds())} ago",
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
