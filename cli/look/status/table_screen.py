"""The screen of `calve status TABLE`: one table, its lateness and its history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.console import duration
from cli.look.status.health import TableStatus
from cli.look.status.overview import History, Overview, lines
from cli.look.status.screen import (
    MARKS,
    MOST_TROUBLES,
    UNKNOWN,
    WIDE,
    alarming,
    fitted,
    heading,
    lag_age,
    late,
    plot,
    seconds,
    short,
    size,
)

SNAPSHOTS = 15
STATES, DONE = 6, 6
DISPENSABLE = (
    "cpu s",
    "requests",
    "filtered",
    "skipped",
    "bytes",
    "deduplicated",
    "deleted",
    "stage ms",
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
        parts += [_plots(history, table, width), Text(), _timeline(history, snapshots, width)]
    if len(history.states) > 1:
        parts += [Text(), _states(history, found.at)]
    if history.done:
        parts += [Text(), _done(history)]
    return Group(*parts)


def _facts(table: TableStatus, found: Overview) -> RenderableType:
    mark, style = MARKS.get(table.state, UNKNOWN)
    lasting = f" since {table.since}" if table.since else ""
    lag = "not known" if table.lag_records is None else f"{table.lag_records:,} records"
    age = lag_age(table, found)
    average = f", {size(table.bytes / table.files)} on average" if table.files else ""
    deletes = f", {table.delete_files:,} delete files" if table.delete_files else ""
    grid = Table.grid(padding=(0, 2))
    for _ in ("left", "right"):
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
    grid.add_row("state", Text(f"{mark} {table.state}{lasting}", style), "topic", table.topic)
    grid.add_row("lag", Text(f"{lag}, {age}" if age else lag, late(table)), "rows", f"{table.rows:,}")
    grid.add_row("freshness", _fresh(table), "files", f"{short(table.files)}{average}{deletes}")
    grid.add_row("commit", _newest(table), "snapshots", f"{table.snapshots:,}")
    more = [("due", f"{each.kind}: {each.why}") for each in table.due]
    more += [("waits", f"a {each.request} since {each.at}") for each in table.waiting]
    more += [(each.target, f"{each.state} {each.reason or ''}") for each in found.published]
    return Group(grid, *(Text.assemble((f"{name}  ", "dim"), value) for name, value in more if value))


def _fresh(table: TableStatus) -> str:
    promise = f"{duration(table.freshness_target_s)} promised"
    if table.freshness_p95_s is None:
        return f"{seconds(table.freshness_s)} of {promise}"
    return f"{seconds(table.freshness_p50_s)} p50, {seconds(table.freshness_p95_s)} p95 of {promise}"


def _newest(table: TableStatus) -> str:
    return "none yet" if table.commit_age_s is None else f"{duration(table.commit_age_s)} ago"


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
    drawn = [_plot(title, values, room) for title, values in shown.items()]
    if not beside:
        return Group(*drawn)
    grid = Table.grid(expand=True)
    grid.add_row(*drawn)
    return grid


def _plot(title: str, values: Sequence[tuple[datetime, float]], room: int) -> RenderableType:
    drawn = plot([value for _, value in values], width=room, height=PLOT_HEIGHT, label=duration)
    began, ended = values[0][0], values[-1][0]
    text = Text(f"{title}\n", "bold")
    text.append("\n".join(drawn) + "\n", "not bold cyan")
    text.append(f"{began:%m-%d %H:%M} .. {ended:%m-%d %H:%M} UTC, {len(values)} commits", "not bold dim")
    return text


def _timeline(history: History, at_most: int, width: int) -> RenderableType:
    rows = list(lines(history, at_most))
    names = [name for name in rows[0] if any(row[name] not in (None, 0, "") for row in rows)]
    columns = {
        name.replace("_", " "): [_cell(name, row[name]) for row in rows]
        for name in names
        if name != "snapshot"
    }
    table = fitted(columns, width, left=("committed", "what"), dispensable=DISPENSABLE)
    if more := len(history.snapshots) - len(rows):
        return Group(table, Text(f"and {more} older: -o json has all", "dim"))
    return table


def _cell(name: str, value: object) -> Text:
    if value is None or value == 0:
        return Text("-", "dim")
    if name in ("dead_letters", "gaps", "lost"):
        return Text(f"{value:,}", "yellow")
    if name == "bytes" and isinstance(value, int | float):
        return Text(size(value))
    return Text(f"{value:,}" if isinstance(value, int | float) else str(value))


def _done(history: History) -> RenderableType:
    grid = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    for name in ("done", "at", "by", "what became of it"):
        grid.add_column(name, overflow="fold")
    for each in history.done[:DONE]:
        became = Text(f"refused: {each.problem}", "yellow") if each.problem else Text(each.told)
        grid.add_row(each.what, each.at, Text(each.by or "the job"), became)
    return grid


def _states(history: History, now: datetime) -> RenderableType:
    grid = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    for name in ("state", "since", "for", "code"):
        grid.add_column(name)
    ended = now
    for each in history.states[:STATES]:
        mark, style = MARKS.get(each.state, UNKNOWN)
        began = datetime.fromisoformat(each.since) if each.since else None
        lasted = duration(max(0.0, (ended - began).total_seconds())) if began else "-"
        grid.add_row(Text(f"{mark} {each.state}", style), each.since or "-", lasted, each.code or "")
        ended = began or ended
    return grid
