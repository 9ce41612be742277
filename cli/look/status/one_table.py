"""The screen of `calve status TABLE`: its facts, its lag and freshness over time, its commits, schemas and states."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.console import duration, plain
from cli.look.health import TableStatus
from cli.look.status.metadata import SchemaVersion
from cli.look.status.overview import History, Overview, lines
from cli.look.status.screen import (
    MARKS,
    MOST_TROUBLES,
    WIDE,
    alarming,
    fitted,
    heading,
    lag_age,
    late,
    marked,
    plot,
    seconds,
    short,
    size,
)

SNAPSHOTS = 15
STATES, DONE, SCHEMAS = 6, 6, 6
SCHEMA_COLUMNS = ("schema", "since", "columns", "changes")
DISPENSABLE_OF_ROUNDS = (
    "cpu s",
    "requests",
    "filtered",
    "skipped",
    "bytes",
    "deduplicated",
    "deleted",
    "commit ms",
)
"""Columns of rounds to leave out, in this order."""
PLOT_HEIGHT = 5
FRAME = 24
"""Lines of the screen beside the snapshots."""


def table_screen(found: Overview, width: int, height: int | None = None) -> RenderableType:
    """The screen of one table. height: as for `cli.look.status.screen.screen`."""
    (table,), history = found.tables, found.history or History()
    snapshots = SNAPSHOTS if height is None else max(3, height - FRAME)
    parts: list[RenderableType] = [heading(found), Text()]
    parts += [alarming(found.troubles, MOST_TROUBLES), Text(), _facts(table, found), Text()]
    if history.snapshots:
        parts += [_plots(history, table, width), Text(), *_timeline(history, snapshots, width)]
    if len(history.schemas) > 1:
        parts += [Text(), _schemas(history)]
    if len(history.states) > 1:
        parts += [Text(), _states(history, found.at)]
    if history.done:
        done = plain(padding=(0, 1))
        for name in ("done", "at", "by", "what became of it"):
            done.add_column(name, overflow="fold")
        for each in history.done[:DONE]:
            became = Text(f"refused: {each.problem}", "yellow") if each.problem else Text(each.told)
            done.add_row(each.what, each.at, Text(each.by or "the job"), became)
        parts += [Text(), done]
    return Group(*parts)


Fact = tuple[str, str]


def short_facts(table: TableStatus, found: Overview) -> list[Fact]:
    """Names and texts that fit half a line."""
    since = f" since {table.since[:16].replace('T', ' ')} UTC" if table.since else ""
    lag = "not known" if table.lag_records is None else f"{table.lag_records:,} records"
    fresh = seconds(table.freshness_s)
    if table.freshness_p95_s is not None:
        fresh = f"{seconds(table.freshness_p50_s)} p50, {seconds(table.freshness_p95_s)} p95"
    average = f", {size(table.bytes / table.files)} on average" if table.files else ""
    deletes = f", {table.delete_files:,} delete files" if table.delete_files else ""
    facts = [
        ("state", table.state + since),
        ("topic", table.topic),
        ("lag", ", the oldest for ".join(filter(None, (lag, lag_age(table, found))))),
        ("rows", f"{table.rows:,}"),
        ("freshness", f"{fresh} of {duration(table.freshness_target_s)} promised"),
        ("files", f"{short(table.files)}{average}{deletes}"),
        ("size", size(table.bytes)),
        ("commit", "none yet" if table.commit_age_s is None else f"{duration(table.commit_age_s)} ago"),
        ("snapshots", f"{table.snapshots:,}"),
        ("job", table.job),
    ]
    if found.history and (cost := found.history.cost):
        facts.append(("cost", f"{dollars(cost.usd)} a day, without idle workers"))
    return facts


def long_facts(table: TableStatus, found: Overview) -> list[Fact]:
    """What waits, what is due, and where the table is published."""
    more = [("due", f"{each.kind}: {each.why}") for each in table.due]
    more += [("waits", f"a {each.request} since {each.at}") for each in table.waiting]
    return more + [(each.target, f"{each.state} {each.reason or ''}".rstrip()) for each in found.published]


def dollars(usd: float) -> str:
    """`$1.20`, `$0.0043`: two figures that say something."""
    return f"${usd:,.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.2g}" if usd >= 0.0001 else "under $0.0001"


def _facts(table: TableStatus, found: Overview) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for _ in ("left", "right"):
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
    mark, colour = MARKS.get(table.state, ("?", "dim"))
    styles = {"state": colour, "lag": late(table)}
    cells = [
        (name, Text(f"{mark} {text}" if name == "state" else text, styles.get(name, "")))
        for name, text in short_facts(table, found)
    ]
    for left, right in zip_longest(cells[::2], cells[1::2], fillvalue=("", Text())):
        grid.add_row(*left, *right)
    more = (Text.assemble((f"{name}  ", "dim"), text) for name, text in long_facts(table, found))
    return Group(grid, *more)


def _plots(history: History, table: TableStatus, width: int) -> RenderableType:
    """Lag after each round and age of records when visible, side by side if there is room."""
    fresh = history.figures("freshness_p95_s") or history.figures("freshness_s")
    found = {
        "oldest record left by each round": history.figures("lag_s"),
        f"age when visible, {duration(table.freshness_target_s)} promised": fresh,
    }
    shown = {title: values for title, values in found.items() if values}
    beside = len(shown) > 1 and width >= WIDE
    room = (width // 2 if beside else width) - 12
    drawn = []
    for title, values in shown.items():
        bars = plot([value for _, value in values], width=room, height=PLOT_HEIGHT, label=duration)
        began, ended = values[0][0], values[-1][0]
        text = Text(f"{title}\n", "bold")
        text.append("\n".join(bars) + "\n", "not bold cyan")
        text.append(f"{began:%m-%d %H:%M} .. {ended:%m-%d %H:%M} UTC, {len(values)} commits", "not bold dim")
        drawn.append(text)
    if not beside:
        return Group(*drawn)
    grid = Table.grid(expand=True)
    grid.add_row(*drawn)
    return grid


def _timeline(history: History, at_most: int, width: int) -> Iterator[RenderableType]:
    rows = list(lines(history, at_most))
    columns = {
        name.replace("_", " "): [_cell(name, row[name]) for row in rows]
        for name in rows[0]
        if name != "snapshot" and any(row[name] not in (None, 0, "") for row in rows)
    }
    yield fitted(columns, width, left=("committed", "what"), dispensable=DISPENSABLE_OF_ROUNDS)
    if more := len(history.snapshots) - len(rows):
        yield Text(f"and {more} older: -o json has all", "dim")


def _cell(name: str, value: object) -> Text:
    if value is None or value == 0:
        return Text("-", "dim")
    if name in ("dead_letters", "gaps", "lost"):
        return Text(f"{value:,}", "yellow")
    if name == "bytes" and isinstance(value, int | float):
        return Text(size(value))
    return Text(f"{value:,}" if isinstance(value, int | float) else str(value))


def _schemas(history: History) -> RenderableType:
    grid = plain(padding=(0, 1))
    for name in SCHEMA_COLUMNS:
        grid.add_column(name, overflow="fold", justify="right" if name in ("schema", "columns") else "left")
    for each in history.schemas[:SCHEMAS]:
        grid.add_row(*schema_line(each))
    return grid


def schema_line(version: SchemaVersion) -> tuple[str, str, str, str]:
    """The texts of `SCHEMA_COLUMNS`."""
    since = f"{datetime.fromtimestamp(version.at, UTC):%Y-%m-%d %H:%M} UTC" if version.at else "-"
    return str(version.id), since, str(version.columns), ", ".join(version.changes)


def _states(history: History, now: datetime) -> RenderableType:
    grid = plain(padding=(0, 1))
    for name in ("state", "since", "for", "code"):
        grid.add_column(name)
    ended = now
    for each in history.states[:STATES]:
        began = datetime.fromisoformat(each.since) if each.since else None
        lasted = duration(max(0.0, (ended - began).total_seconds())) if began else "-"
        grid.add_row(marked(each.state), each.since or "-", lasted, each.code or "")
        ended = began or ended
    return grid
