"""`calve status`: how each table fares, what is wrong, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from calve.errors import ConfigError
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TablesArgument
from cli.console import Console, Output, OutputOption, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.look.status.health import TableStatus, Trouble
    from cli.look.status.overview import Overview
    from lambdas.publish_states import PublishState

WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Draw the screen again every few seconds, until q or Ctrl-C.")
]


def status(
    tables: TablesArgument = None,
    *,
    watch: WatchOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show what is wrong and what to do, then how each table fares; of one table, its history, too.

    Kafka is asked where it can be reached; elsewhere, lag is what the jobs reported last.

    Examples:
      calve status
      calve status --watch
      calve status stock_trades --output json
    """
    from cli.look.status.overview import look
    from cli.look.status.watching import drawn
    from cli.look.status.watching import watch as watch_until_told

    console = Console(output)
    if watch and not console.is_terminal:
        raise ConfigError(
            "--watch draws on a terminal, and there is none", fix="leave it out; -o json is for programs"
        )
    if watch:
        watch_until_told(console, lambda: look(config, env, tables or ()))
        return
    found = look(config, env, tables or ())
    for each in found.problems:
        console.error(each)
    if console.is_terminal:
        console.draw(drawn(found, console.size[0]))
    else:
        _print(console, found)
    console.document(found.document)


def _print(console: Console, found: Overview) -> None:
    """For a log or a pipe: a line for each trouble, and for each table."""
    from cli.look.status.overview import lines

    say(console, found.troubles)
    console.table("status", [_line(each) for each in found.tables])
    console.table("published", [_published(each) for each in found.published])
    if found.history:
        console.table("snapshot", list(lines(found.history, len(found.history.snapshots))))
        console.table("state", [asdict(each) for each in found.history.states])
        console.table("done", [asdict(each) for each in found.history.done])


def say(console: Console, troubles: Sequence[Trouble]) -> None:
    """What is wrong and what to do."""
    from cli.look.status.screen import MOST_TROUBLES, alarming

    if not console.is_terminal:
        console.table("trouble", [asdict(each) for each in troubles])
    elif troubles:
        console.draw(alarming(troubles, MOST_TROUBLES))


def _line(status: TableStatus) -> dict[str, object]:
    lag = "-" if status.lag_records is None else f"{status.lag_records:,}"
    if status.lag_records and status.lag_s is not None:
        lag += f" ({duration(status.lag_s)})"
    if status.lag_source == "job":
        lag += f" as of {status.lag_as_of}"
    fresh = "-" if status.freshness_s is None else duration(status.freshness_s)
    if status.freshness_p95_s is not None and status.freshness_p50_s is not None:
        fresh = f"{duration(status.freshness_p50_s)}/{duration(status.freshness_p95_s)}"
    return {
        "table": status.table,
        "state": status.state,
        "rows": status.rows,
        "committed": "-" if status.commit_age_s is None else f"{duration(status.commit_age_s)} ago",
        "lag": lag,
        "freshness": f"{fresh} of {duration(status.freshness_target_s)}",
        "dead_letters": sum(status.dead_letters.values()),
        "files": status.files,
        "bytes": status.bytes,
        "due": ",".join(each.kind for each in status.due) or "-",
    }


def _published(state: PublishState) -> dict[str, object]:
    return {
        "table": state.table,
        "target": state.target,
        "state": state.state,
        "since": datetime.fromtimestamp(state.since_ms / 1000, UTC).isoformat(timespec="seconds"),
        "snapshot": state.snapshot_id,
        "lag": None if state.lag_s is None else duration(state.lag_s),
        "reason": state.reason,
    }
