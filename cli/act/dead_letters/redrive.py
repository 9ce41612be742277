"""`calve dead-letters redrive`: a request in the table, which the job answers between two rounds."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from calve.errors import CalveError
from calve.requests.redrive import Request, Result
from cli.act.dead_letters.options import (
    ReasonOption,
    SchemaOption,
    SinceOption,
    UntilOption,
    open_both,
)
from cli.act.requests import Kind, YesOption, ask, refuse_second, require_consent
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TableArgument
from cli.console import Console, Output, OutputOption

if TYPE_CHECKING:
    from cli.dead_letters import Selection

PATIENCE_S = 120.0
"""A suspended table is looked at once a minute, a running one at least as often as its freshness says."""
REDRIVE = Kind(Request, "a redrive of", Result.of)


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
    name, settings, main, letters = open_both(table, config, env)
    refuse_second(REDRIVE, main)
    groups = grouped(letters, selection) if letters else []
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
