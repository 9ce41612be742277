"""`calve dead-letters redrive`, and the options by which commands select dead letters."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calve.errors import CalveError
from calve.requests.redrive import Request, Result
from cli.act.requests import Kind, YesOption, ask, open_both, refuse_second, require_consent
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TableArgument
from cli.console import Console, Output, OutputOption

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from calve.names import TableName
    from cli.dead_letters import Selection

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        "-s",
        help="Only those rejected since: 2h, 7d, 2026-01-01T00:00:00Z.",
        show_default=False,
    ),
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", "-r", help="Only those of this reason.", show_default=False)
]
SchemaOption = Annotated[
    int | None,
    typer.Option("--schema-id", "-i", help="Only those with this registry id.", show_default=False),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", "-u", help="Only those rejected before: written as --since.", show_default=False),
]
RedrivenOption = Annotated[
    bool, typer.Option("--redriven", help="Those that came back, instead of those that are open.")
]
PATIENCE_S = 120.0
"""A suspended table is looked at once a minute, a running one at least as often as its freshness says."""
REDRIVE = Kind(Request, "a redrive of", Result.of)


def open_table(table: str, config: Path, env: str | None) -> tuple[TableName, Table | None]:
    """The table's full name and its dead-letter table, as `open_both`."""
    name, _, _, dead_letters = open_both(table, config, env)
    return name, dead_letters


def redrive(
    table: TableArgument,
    *,
    since: SinceOption = None,
    reason: ReasonOption = None,
    schema_id: SchemaOption = None,
    until: UntilOption = None,
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have the job read dead letters again, after a fix.

    Those that are rows now enter the table, each once. The others stay what they are. Ctrl-C ends the waiting, not the redrive.

    Example:
      calve dead-letters redrive stock_trades --schema-id 7
    """
    from cli.dead_letters import Selection, grouped

    console, now = Console(output), datetime.now(UTC)
    selection = Selection.of(since, reason, schema_id, now=now, until=until)
    name, settings, main, dead_letters = open_both(table, config, env)
    refuse_second(REDRIVE, main)
    groups = grouped(dead_letters, selection) if dead_letters else []
    if not groups:
        console.say(f"{name} has no open dead letters{selection.words}: there is nothing to redrive.")
        console.document({"table": str(name), **asdict(Result("", now.isoformat()))})
        return
    console.table(f"to redrive {name}", [each.line for each in groups])
    question = f"Read {sum(each.dead_letters for each in groups):,} dead letters again?"
    require_consent(console, question, look_at="what is selected", yes=yes)
    request = _request(selection, now)
    result = ask(
        console,
        main,
        REDRIVE,
        request,
        title=f"redrive of {name}",
        patience_s=max(PATIENCE_S, 2 * settings.freshness_s),
        ingest=table,
    )
    console.document({"table": str(name), **asdict(result)})
    if result.problem:
        raise CalveError(
            f"nothing of {name} was redriven: {result.problem}", fix="cure that, then ask for it again"
        )
    console.panel(f"redrive of {name}", _figures(result))


def _request(selection: Selection, now: datetime) -> Request:
    return Request(
        id=uuid.uuid4().hex,
        at=now.isoformat(timespec="seconds"),
        reason=selection.reason,
        schema_id=selection.schema_id,
        since=selection.since.isoformat() if selection.since else None,
        until=selection.until.isoformat() if selection.until else None,
    )


def _figures(result: Result) -> dict[str, object]:
    found: dict[str, object] = {
        "selected": f"{result.selected:,} dead letters",
        "in the table now": f"{result.redriven:,}",
    }
    if result.present:
        found["there already"] = f"{result.present:,}"
    dead = ", ".join(f"{count:,} {reason}" for reason, count in sorted(result.refused.items()))
    return found | {"still dead": dead or "none"}
