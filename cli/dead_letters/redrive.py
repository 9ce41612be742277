"""`calve dead-letters redrive`: a request in the table, which the job answers between two rounds."""

from __future__ import annotations

import sys
import time
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from calve.errors import CalveError, ConfigError
from calve.redrive import REQUEST, Request, Result
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption
from cli.console import Console, Output, OutputOption
from cli.dead_letters.options import (
    ReasonOption,
    SchemaOption,
    SinceOption,
    TableArgument,
    UntilOption,
    open_both,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from cli.dead_letters.selection import Selection
    from cli.dead_letters.summary import Group

ASK_S = 1.0
PATIENCE_S = 120.0
"""A suspended table is looked at once a minute, a running one at least as often as its freshness says."""
COMMIT_ATTEMPTS = 5

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Ask no question.")]


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
    """Have the job read dead letters again, after a fix: those that are rows now enter the table, each once.

    The others stay what they are. Ctrl-C ends the waiting, not the redrive.
    """
    from cli.dead_letters.selection import Selection

    console, now = Console(output), datetime.now(UTC)
    selection = Selection.of(since, reason, schema_id, now=now, until=until)
    name, settings, main, letters = open_both(table, config, env)
    _refuse_second(str(name), main)
    groups = _selected(letters, selection) if letters else []
    if not groups:
        console.say(f"{name} has no open dead letters{selection.words}: there is nothing to redrive.")
        console.document({"table": str(name), **asdict(Result("", now.isoformat()))})
        return
    console.table(f"to redrive {name}", [_line(each) for each in groups])
    _require_consent(console, sum(each.dead_letters for each in groups), yes=yes)
    request = _request(selection, now)
    main = _write(main, request)
    result = _wait(console, main, request, patience_s=max(PATIENCE_S, 2 * settings.freshness_s), table=table)
    console.document({"table": str(name), **asdict(result)})
    if result.problem:
        raise CalveError(
            f"nothing of {name} was redriven: {result.problem}", fix="cure that, then ask for it again"
        )
    console.panel(f"redrive of {name}", _figures(result))


def _selected(letters: Table, selection: Selection) -> list[Group]:
    from cli.dead_letters.reading import read
    from cli.dead_letters.summary import COLUMNS, summarize

    return summarize(read(letters, selection.within(letters), COLUMNS))


def _line(group: Group) -> dict[str, object]:
    schema = "others" if group.other_schemas else group.schema_id
    return {
        "reason": group.reason,
        "schema_id": "-" if schema is None else str(schema),
        "dead_letters": group.dead_letters,
    }


def _refuse_second(name: str, main: Table) -> None:
    try:
        pending = Request.pending(main.properties)
    except ValueError:
        return
    if pending is not None:
        raise CalveError(
            f"a redrive of {name} waits already, since {pending.at}",
            fix="start the job, which answers it with its next round: calve ingest; then ask again",
        )


def _require_consent(console: Console, count: int, *, yes: bool) -> None:
    if yes:
        return
    if console.output is Output.json or not sys.stdin.isatty():
        raise ConfigError("nobody is there to be asked", fix="look at what is selected, then add --yes")
    typer.confirm(f"Read {count:,} dead letters again?", abort=True, err=True)


def _request(selection: Selection, now: datetime) -> Request:
    return Request(
        id=uuid.uuid4().hex,
        at=now.isoformat(timespec="seconds"),
        reason=selection.reason,
        schema_id=selection.schema_id,
        since=selection.since.isoformat() if selection.since else None,
        until=selection.until.isoformat() if selection.until else None,
    )


def _write(main: Table, request: Request) -> Table:
    """Leave the request in the table's properties; a running job may commit at the same moment."""
    from pyiceberg.exceptions import CommitFailedException

    from cli.lake import aws_errors

    name = ".".join(main.name())
    with aws_errors(f"table {name}"):
        for _ in range(COMMIT_ATTEMPTS):
            try:
                main.transaction().set_properties({REQUEST: request.to_json()}).commit_transaction()
            except CommitFailedException:
                main.refresh()
                _refuse_second(name, main)
            else:
                return main
    raise CalveError(f"table {name} changes too often to take the request", fix="ask again")


def _wait(console: Console, main: Table, request: Request, *, patience_s: float, table: str) -> Result:
    """Until the job has answered.

    Raises:
        CalveError: nobody has in time, or another request has taken this one's place.
    """
    from cli.lake import aws_errors, state_of

    name = ".".join(main.name())
    until = time.monotonic() + patience_s
    try:
        with console.progress().task(f"redrive of {name}") as task, aws_errors(f"table {name}"):
            while (result := Result.of(main.properties, request.id)) is None:
                state = state_of(main)
                task.update(note=f"waiting for the job; the table is {state.state}")
                if Request.pending(main.properties) != request:
                    raise CalveError(f"another redrive of {name} has taken the place of this one")
                if time.monotonic() > until:
                    raise CalveError(
                        f"no job has answered within {patience_s:.0f} s; the request stays in the table",
                        fix=f"start the job, which answers it with its next round: calve ingest {table}",
                    )
                time.sleep(ASK_S)
                main.refresh()
    except KeyboardInterrupt:
        console.event("the request stays in the table", id=request.id)
        raise
    return result


def _figures(result: Result) -> dict[str, object]:
    found: dict[str, object] = {
        "selected": f"{result.selected:,} dead letters",
        "in the table now": f"{result.redriven:,}",
    }
    if result.present:
        found["there already"] = f"{result.present:,}"
    dead = ", ".join(f"{count:,} {reason}" for reason, count in sorted(result.refused.items()))
    return found | {"still dead": dead or "none"}
