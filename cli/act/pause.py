"""`calve pause` and `calve resume`: a property of the table that its job respects before each round."""

from __future__ import annotations

import getpass
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from calve.errors import ConfigError
from calve.requests.requests import Entry, Pause, outdated
from calve.table.summary import PAUSED
from cli.act.requests import Identified, Unanswered, change, open_both, wait
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TableArgument
from cli.console import Console, Output, OutputOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.table import Table

    from calve.config.job import Table as Settings
    from calve.outputs.job_status import TableState

PATIENCE_S = 120.0
REASON_LENGTH = 300

ReasonOption = Annotated[
    str | None, typer.Option("--reason", "-r", help="Why, for whoever asks later.", show_default=False)
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", "-u", help="When it ends by itself: 2026-01-01T00:00:00Z.", show_default=False),
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

    The job stays, and answers requests. Records wait in Kafka: mind the topic's retention. Ctrl-C ends the waiting only.

    Example:
      calve pause stock_trades --reason "schema under repair"
    """
    console, now = Console(output), datetime.now(UTC)
    name, settings, main, _ = open_both(table, config, env)
    if reason is not None and len(reason) > REASON_LENGTH:
        raise ConfigError(f"--reason is longer than {REASON_LENGTH} characters", fix="shorten it")
    held = Pause(uuid.uuid4().hex, stamp(now), person(), reason, _until(until, now))
    entry = Entry(held.id, held.at, "pause", held.words, held.by)
    change(main, {PAUSED: held.to_json(), **entry.property()}, remove=outdated(main.properties))
    applied = _wait(console, main, held, lambda state: state.code == held.id, settings)
    console.document({"table": str(name), **asdict(held), "heeded": applied})
    if applied:
        console.say(f"{name} is paused {held.words}. Go on with: calve resume {table}")
    else:
        console.say(
            f"{name} is paused {held.words}. No job runs that has said so; whichever starts heeds it."
        )


def resume(
    table: TableArgument,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have the job go on with a table that `calve pause` has stopped, from where it stands.

    Example:
      calve resume stock_trades
    """
    console, now = Console(output), datetime.now(UTC)
    name, settings, main, _ = open_both(table, config, env)
    held = Pause.of(main.properties, now)
    if held is None:
        console.say(f"{name} is not paused: there is nothing to resume.")
        console.document({"table": str(name), "resumed": False})
        return
    entry = Entry(uuid.uuid4().hex, stamp(now), "resume", f"was paused {held.words}", person())
    change(main, entry.property(), remove=[PAUSED, *outdated(main.properties)])
    applied = _wait(console, main, entry, lambda state: state.state != "paused", settings)
    console.document({"table": str(name), "resumed": True, "heeded": applied})
    effect = "is read again" if applied else "will be read again by the next job, as none runs now"
    console.say(f"{name} {effect}; it was paused {held.words}.")


def _wait(
    console: Console,
    main: Table,
    request: Identified,
    applied: Callable[[TableState], bool],
    settings: Settings,
) -> bool:
    """True once a job reports in the table that it has applied the change; False if no job runs."""
    from cli.lake import state_of

    try:
        return wait(
            console,
            main,
            lambda: applied(state_of(main)) or None,
            request=request,
            title=f"waiting for the job of {'.'.join(main.name())}",
            patience_s=max(PATIENCE_S, 2 * settings.freshness_s),
            ingest=settings.name,
        )
    except Unanswered:
        return False


def stamp(now: datetime) -> str:
    return now.isoformat(timespec="milliseconds")


def person() -> str:
    """The name of this machine's user."""
    try:
        return getpass.getuser()
    except OSError:
        return "somebody"


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
