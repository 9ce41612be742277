"""`calve pause` and `calve resume`: a property of the table that its job respects before each round."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from calve.errors import ConfigError
from calve.outputs.job_status import TableState
from calve.requests.requests import Entry, Pause, outdated
from calve.table.summary import PAUSED
from cli.act.requests import OpenedTable, Unanswered, person, stamp
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TableArgument
from cli.console import Console, Output, OutputOption
from cli.lake import state_of

REASON_LENGTH = 300
ReasonOption = Annotated[str | None, typer.Option("--reason", "-r", help="Why: later readers see it.")]
UntilOption = Annotated[
    str | None, typer.Option("--until", "-u", help="When it ends by itself: 2026-01-01T00:00:00Z.")
]


def pause(
    table: TableArgument,
    *,
    reason: ReasonOption = None,
    until: UntilOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have the job stop reading a table's topic after its running round, until `calve resume`, also over restarts.

    The job keeps running and answers requests. Records wait in Kafka: check the topic's retention. Ctrl-C ends the waiting only.

    Example:
      calve pause stock_trades --reason "schema under repair"
    """
    now = datetime.now(UTC)
    opened = OpenedTable.open(table, config, env, console := Console(output))
    if reason is not None and len(reason) > REASON_LENGTH:
        raise ConfigError(f"--reason is longer than {REASON_LENGTH} characters", fix="shorten it")
    held = Pause(uuid.uuid4().hex, stamp(now), person(), reason, _until(until, now))
    entry = Entry(held.id, held.at, "pause", held.words, held.by)
    opened.change({PAUSED: held.to_json(), **entry.property()}, remove=outdated(opened.main.properties))
    applied = _is_applied(opened, held.id, lambda state: state.code == held.id)
    console.document({"table": str(opened.name), **asdict(held), "heeded": applied})
    then = (
        f"Go on with: calve resume {table}" if applied else "No job runs now; the next one will respect it."
    )
    console.say(f"{opened.name} is paused {held.words}. {then}")


def resume(
    table: TableArgument,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have the job read a paused table again, from its position.

    Example:
      calve resume stock_trades
    """
    now = datetime.now(UTC)
    opened = OpenedTable.open(table, config, env, console := Console(output))
    held = Pause.of(opened.main.properties, now)
    if held is None:
        console.say(f"{opened.name} is not paused: there is nothing to resume.")
        console.document({"table": str(opened.name), "resumed": False})
        return
    entry = Entry(uuid.uuid4().hex, stamp(now), "resume", f"was paused {held.words}", person())
    opened.change(entry.property(), remove=[PAUSED, *outdated(opened.main.properties)])
    applied = _is_applied(opened, entry.id, lambda state: state.state != "paused")
    console.document({"table": str(opened.name), "resumed": True, "heeded": applied})
    effect = "is read again" if applied else "will be read again by the next job, as none runs now"
    console.say(f"{opened.name} {effect}; it was paused {held.words}.")


def _is_applied(opened: OpenedTable, id: str, applied: Callable[[TableState], bool]) -> bool:
    """True once a job reports in the table that it has applied the change; False if no job runs."""
    title = f"waiting for the job of {opened.name}"
    try:
        return opened.wait(title, lambda: applied(state_of(opened.main)) or None, id=id)
    except Unanswered:
        return False


def _until(text: str | None, now: datetime) -> str | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = now
    if found.tzinfo is None or found <= now:
        raise ConfigError(
            f'--until: "{text}" is no moment to come',
            fix="write it as 2026-01-01T00:00:00Z, with its time zone",
        )
    return found.isoformat()
