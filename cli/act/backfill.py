"""`calve backfill`: a request in the table, which the job answers between two rounds."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from calve.config.job import Start
from calve.config.job import Table as Settings
from calve.errors import CalveError
from calve.requests.backfill import Request
from calve.requests.requests import Entry
from cli.act.dead_letters.options import open_both
from cli.act.pause import person, stamp
from cli.act.requests import Kind, YesOption, ask, refuse_second, require_consent
from cli.act.rollback import PLACES, places
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TableArgument, moment
from cli.console import Console, Output, OutputOption

PATIENCE_S = 600.0
"""A range may be large."""
BACKFILL = Kind(Request, "a backfill of", Entry.of)
HELP = "PARTITION:OFFSET, several with commas, or a moment of the records: 2h, 2026-01-01T00:00:00Z."

FromOption = Annotated[str, typer.Option("--from", help=f"The first records. {HELP}", show_default=False)]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to", help=f"Before which it ends; else where the table stands. {HELP}", show_default=False
    ),
]


def backfill(
    table: TableArgument,
    *,
    start: FromOption,
    to: ToOption = None,
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have the job read a range of records again and put the rows they make now in the place of those they made.

    For a table whose every record is a row, once a schema or a step has been corrected. Readers see the old rows, or all the new
    ones. Ctrl-C ends the waiting, not the backfill.

    Example:
      calve backfill stock_trades --from 0:1500,1:1480 --to 0:9000,1:9100
    """
    console, now = Console(output), datetime.now(UTC)
    name, settings, main, _ = open_both(table, config, env)
    refuse_second(BACKFILL, main)
    first = _end(start, now, "--from")
    end = Start("timestamp", round(now.timestamp() * 1000)) if to is None else _end(to, now, "--to")
    for each in consequences(settings):
        console.say(each)
    require_consent(console, f"Make these rows of {name} anew?", look_at="what will happen", yes=yes)
    request = Request(uuid.uuid4().hex, stamp(now), person(), first, end)
    patience_s = max(PATIENCE_S, 2 * settings.freshness_s)
    entry = ask(
        console, main, BACKFILL, request, title=f"backfill of {name}", patience_s=patience_s, ingest=table
    )
    console.document({"table": str(name), **asdict(entry)})
    if entry.problem:
        raise CalveError(f"nothing of {name} was made anew: {entry.problem}", fix="cure that, then ask again")
    console.say(f"{name}: {entry.told}.")


def consequences(settings: Settings) -> list[str]:
    """What a backfill means, a sentence each."""
    found = [
        f"Records of topic {settings.topic} in this range are read again, and their rows replaced in one commit.",
        "Where a record of them is a row only then, or only now, nothing is changed.",
        "Dead letters stay; stored exports stay as they are.",
    ]
    if settings.emit:
        found.append(f"The new rows are written to topic {settings.emit.topic}.")
    return found


def _end(text: str, now: datetime, option: str) -> Start:
    if PLACES.fullmatch(text):
        return Start("offsets", offsets=places(text))
    return Start("timestamp", round(moment(text, now, option).timestamp() * 1000))
