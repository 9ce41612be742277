"""The screen of `calve status`: what is wrong and what to do, then a line for each table, the most urgent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cli.console import duration
from cli.look.status.drawing import MARKS, UNKNOWN, fitted, seconds, short, size
from cli.look.status.troubles import Trouble, Urgency

if TYPE_CHECKING:
    from cli.look.status.overview import Overview
    from cli.look.status.table_status import TableStatus

WIDE = 100
"""Columns of a terminal from which on every figure has its place."""
URGENT = {
    Urgency.STOPPED: ("✗", "bold red"),
    Urgency.LATE: ("!", "bold yellow"),
    Urgency.NOTE: ("·", "yellow"),
}
MOST_TROUBLES = 12
LONGEST_NAME = 30


def screen(found: Overview, width: int, height: int | None = None) -> RenderableType:
    """The whole screen. height: lines that there are, which the less urgent may not fit into; None: there is no end."""
    troubles = found.troubles
    at_most = MOST_TROUBLES if height is None else max(2, min(MOST_TROUBLES, (height - 8) // 4))
    parts: list[RenderableType] = [heading(found), Text()]
    parts += [alarming(troubles, at_most), Text()]
    left = None if height is None else max(1, height - 8 - 2 * min(len(troubles), at_most))
    parts.append(_tables(found, width, left))
    if found.published:
        parts += [Text(), elsewhere(found)]
    return Group(*parts)


def heading(found: Overview) -> RenderableType:
    """How many tables are in which state, and when."""
    states = Counter(each.state for each in found.tables)
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    counts = Text(f"{len(found.tables)} table{'s' if len(found.tables) != 1 else ''}  ", "bold")
    for state, count in states.most_common():
        mark, style = MARKS.get(state, UNKNOWN)
        counts.append(f" {mark} {count} {state} ", style)
    line.add_row(counts, Text(f"{found.at:%Y-%m-%d %H:%M:%S} UTC", "dim"))
    parts: list[RenderableType] = [line]
    if any(each.lag_source == "job" for each in found.tables):
        said = "Kafka cannot be asked from here: lag is what each job reported last, and how long ago"
        parts.append(Text(said, "yellow"))
    return Group(*parts, Rule(style="dim"))


def alarming(troubles: Sequence[Trouble], at_most: int) -> RenderableType:
    """A line for each trouble, and its cure below."""
    if not troubles:
        return Text("✓ nothing is wrong", "green")
    grid = Table.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column(overflow="ellipsis", no_wrap=True, max_width=LONGEST_NAME)
    grid.add_column(overflow="fold")
    for each in troubles[:at_most]:
        mark, style = URGENT[each.urgency]
        grid.add_row(Text(mark, style), Text(each.where, "bold"), Text(each.what))
        if each.fix:
            grid.add_row("", "", Text(f"→ {each.fix}", "cyan"))
    if len(troubles) > at_most:
        grid.add_row("", "", Text(f"and {len(troubles) - at_most} more", "dim"))
    return grid


def elsewhere(found: Overview) -> RenderableType:
    """Where the tables are published to, and how many are level there."""
    line = Text("published  ", "dim")
    for target in sorted({each.target for each in found.published}):
        line.append(f"{target} ", "bold")
        states = Counter(each.state for each in found.published if each.target == target)
        for state, count in states.most_common():
            mark, style = MARKS.get(state, UNKNOWN)
            line.append(f"{mark} {count} {state}  ", style)
    return line


def _tables(found: Overview, width: int, at_most: int | None) -> RenderableType:
    shown = found.by_urgency[:at_most]
    columns = {name: [cell(each, found) for each in shown] for name, cell in COLUMNS.items()}
    table = fitted(columns, width, left=("table", "state", "due"), dispensable=DISPENSABLE)
    if len(shown) == len(found.tables):
        return table
    return Group(table, Text(f"and {len(found.tables) - len(shown)} more, which are less urgent", "dim"))


def state(table: TableStatus) -> Text:
    mark, style = MARKS.get(table.state, UNKNOWN)
    return Text(f"{mark} {table.state}", style)


def rejects(table: TableStatus) -> Text:
    count = sum(table.dead_letters.values())
    return Text(short(count), "yellow") if count else Text("-", "dim")


def _fresh(table: TableStatus) -> Text:
    return Text(
        seconds(table.freshness_p95_s or table.freshness_s), "yellow" if table.freshness_missed else ""
    )


def named(table: TableStatus) -> Text:
    text = Text(table.name)
    text.truncate(LONGEST_NAME, overflow="ellipsis")
    return text


COLUMNS: dict[str, Callable[[TableStatus, Overview], Text]] = {
    "table": lambda table, _: named(table),
    "state": lambda table, _: state(table),
    "lag": lambda table, _: Text("-" if table.lag_records is None else short(table.lag_records), late(table)),
    "oldest": lambda table, found: Text(lag_age(table, found), late(table)),
    "p50": lambda table, _: Text(seconds(table.freshness_p50_s)),
    "fresh": lambda table, _: _fresh(table),
    "of": lambda table, _: Text(duration(table.freshness_target_s), "dim"),
    "rows": lambda table, _: Text(short(table.rows)),
    "commit": lambda table, _: Text(seconds(table.commit_age_s)),
    "rejects": lambda table, _: rejects(table),
    "files": lambda table, _: Text(short(table.files)),
    "average": lambda table, _: Text(size(table.bytes / table.files) if table.files else "-"),
    "due": lambda table, _: Text(", ".join(each.kind for each in table.due), "yellow"),
}
"""fresh: how old records were when they became visible, the 95th of 100, `of` what is promised."""
DISPENSABLE = ("p50", "average", "files", "due", "commit")
"""In this order where the terminal is too narrow for all."""


def late(table: TableStatus) -> str:
    """The colour of a lag."""
    if table.lag_s is None or table.lag_records is None:
        return "dim"
    return "" if table.lag_s <= table.freshness_target_s else "bold yellow"


def lag_age(table: TableStatus, found: Overview) -> str:
    """How old the oldest record is that waits; where the job says it, how long ago it did."""
    text = duration(table.lag_s) if table.lag_records and table.lag_s is not None else ""
    if table.lag_source == "job" and table.lag_as_of:
        ago = (found.at - datetime.fromisoformat(table.lag_as_of)).total_seconds()
        text = f"{text} {duration(max(0.0, ago))} ago".strip()
    return text
