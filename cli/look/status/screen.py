"""The screens of `calve status`: problems with their fixes, then a line for each table; of one table, its lateness and history.

The parts are shared with other screens: tables that fit the terminal, plots, short numbers, and the colours of states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cli.console import ago, duration, plain
from cli.exports import Delivered
from cli.look.health import TableStatus, Trouble, Urgency, urgency
from cli.look.status.overview import Overview

MARKS = {
    "running": ("●", "green"),
    "pending": ("○", "yellow"),
    "starting": ("○", "cyan"),
    "retrying": ("↻", "yellow"),
    "ended": ("✓", "green"),
    "refused": ("✗", "bold red"),
    "paused": ("‖", "cyan"),
    "suspended": ("■", "bold yellow"),
    "failed": ("✗", "bold red"),
    "synced": ("●", "green"),
    "syncing": ("○", "yellow"),
}
BLOCKS = " ▁▂▃▄▅▆▇█"
WIDE = 100
"""The least columns of a terminal with room for all figures."""
URGENT = {
    Urgency.STOPPED: ("✗", "bold red"),
    Urgency.LATE: ("!", "bold yellow"),
    Urgency.NOTE: ("·", "yellow"),
}
MOST_TROUBLES = 12
LONGEST_NAME = 30


def fitted(
    columns: Mapping[str, Sequence[Text]], width: int, *, left: Collection[str], dispensable: Sequence[str]
) -> Table:
    """A table of cells by column; a column without room is left out whole.

    left: left-aligned columns. dispensable: columns to leave out, in this order.
    """
    widths = {name: max([len(name), *(each.cell_len for each in cells)]) for name, cells in columns.items()}
    shown = list(columns)
    for name in dispensable:
        if name in shown and sum(1 + widths[each] for each in shown) > width:
            shown.remove(name)
    gap = 2 if sum(2 + widths[each] for each in shown) <= width else 1
    table = plain(padding=(0, gap, 0, 0))
    for name in shown:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True, overflow="ellipsis")
    for row in zip(*(columns[name] for name in shown), strict=True):
        table.add_row(*row)
    return table


def plot(values: Sequence[float], *, width: int, height: int, label: Callable[[float], str]) -> list[str]:
    """Bars from 0 to the greatest value, the oldest at the left; if there are too many, a bar is the greatest of several."""
    broad = max(1, min(3, width // max(1, len(values))))
    edges = [n * len(values) // width for n in range(width + 1)]
    binned = values if len(values) <= width else [max(values[a:b]) for a, b in pairwise(edges)]
    bars = [each for each in binned for _ in range(broad)]
    top = max(bars, default=0.0)
    steps = [round(each / top * height * 8) if top else 0 for each in bars]
    steps = [step or (1 if each > 0 else 0) for step, each in zip(steps, bars, strict=True)]
    margin = max(len(label(top)), len(label(0.0)))
    lines = []
    for row in reversed(range(height)):
        axis = label(top) if row == height - 1 else label(0.0) if row == 0 else ""
        lines.append(
            f"{axis:>{margin}} ┤" + "".join(BLOCKS[max(0, min(8, step - 8 * row))] for step in steps)
        )
    return lines


def short(count: int) -> str:
    """`999,999`, then `1.0M`, `1.2B`."""
    for unit, size in (("B", 1_000_000_000), ("M", 1_000_000)):
        if count >= size:
            return f"{count / size:,.1f}{unit}"
    return f"{count:,}"


def size(count: float) -> str:
    """`512 B`, `1.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def seconds(value: float | None) -> str:
    return "-" if value is None else duration(value)


def screen(found: Overview, width: int, height: int | None = None) -> RenderableType:
    """The whole screen. height: lines of the terminal, which cut off the less urgent tables; None: no limit."""
    troubles = found.troubles
    at_most = MOST_TROUBLES if height is None else max(2, min(MOST_TROUBLES, (height - 8) // 4))
    left = None if height is None else max(1, height - 8 - 2 * min(len(troubles), at_most))
    shown = sorted(found.tables, key=lambda each: urgency(each, found.at))[:left]
    columns = {name: [cell(each, found) for each in shown] for name, cell in COLUMNS.items()}
    tables = fitted(columns, width, left=("table", "state", "due"), dispensable=DISPENSABLE)
    parts: list[RenderableType] = [heading(found), Text(), alarming(troubles, at_most), Text(), tables]
    if more := len(found.tables) - len(shown):
        parts.append(Text(f"and {more} more, which are less urgent", "dim"))
    if found.published:  # with the number of tables in each state
        line = Text("published  ", "dim")
        for target in sorted({each.target for each in found.published}):
            line.append(f"{target} ", "bold")
            states = Counter(each.state for each in found.published if each.target == target)
            for state, count in states.most_common():
                line.append_text(marked(state, count, "  "))
        parts += [Text(), line]
    if found.exports:
        parts.append(Text())
    for each in found.exports:
        parts.append(
            Text.assemble(("export  ", "dim"), (each.export, "bold"), "  ", delivery(each, found.at))
        )
    return Group(*parts)


def delivery(export: Delivered, now: datetime) -> str:
    """The newest file of an export and its links, for people."""
    text = "nothing delivered yet"
    if export.created_at:
        made = datetime.fromisoformat(export.created_at)
        text = f"{export.window}, {export.rows:,} rows" + ("" if export.complete else ", not complete")
        text += f", {ago(made, now)}"
    return text + (f"; links: {links(export)}" if export.links else "")


def links(export: Delivered) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(export.links.items()))


def heading(found: Overview) -> RenderableType:
    states = Counter(each.state for each in found.tables)
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    counts = Text(f"{len(found.tables)} table{'s' if len(found.tables) != 1 else ''}  ", "bold")
    for state, count in states.most_common():
        counts.append(" ").append_text(marked(state, count, " "))
    line.add_row(counts, Text(f"{found.at:%Y-%m-%d %H:%M:%S} UTC", "dim"))
    parts: list[RenderableType] = [line]
    if any(each.lag_source == "job" for each in found.tables):
        said = "Kafka is not reachable from here: lag is the last report of each job, with its age"
        parts.append(Text(said, "yellow"))
    return Group(*parts, Rule(style="dim"))


def alarming(troubles: Sequence[Trouble], at_most: int) -> RenderableType:
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


def marked(state: str, count: int | None = None, more: str = "") -> Text:
    """A state with its mark and colour, and how many have it."""
    mark, style = MARKS.get(state, ("?", "dim"))
    return Text(" ".join(filter(None, (mark, str(count or ""), state))) + more, style)


def rejects(table: TableStatus) -> Text:
    count = sum(table.dead_letters.values())
    return Text(short(count), "yellow") if count else Text("-", "dim")


def named(table: TableStatus) -> Text:
    text = Text(table.name)
    text.truncate(LONGEST_NAME, overflow="ellipsis")
    return text


COLUMNS: dict[str, Callable[[TableStatus, Overview], Text]] = {
    "table": lambda table, _: named(table),
    "state": lambda table, _: marked(table.state),
    "lag": lambda table, _: Text("-" if table.lag_records is None else short(table.lag_records), late(table)),
    "oldest": lambda table, found: Text(lag_age(table, found), late(table)),
    "p50": lambda table, _: Text(seconds(table.freshness_p50_s)),
    "fresh": lambda table, _: Text(
        seconds(table.freshness_p95_s or table.freshness_s), "yellow" if table.freshness_missed else ""
    ),
    "of": lambda table, _: Text(duration(table.freshness_target_s), "dim"),
    "rows": lambda table, _: Text(short(table.rows)),
    "commit": lambda table, _: Text(seconds(table.commit_age_s)),
    "rejects": lambda table, _: rejects(table),
    "files": lambda table, _: Text(short(table.files)),
    "average": lambda table, _: Text(size(table.bytes / table.files) if table.files else "-"),
    "due": lambda table, _: Text(", ".join(each.kind for each in table.due), "yellow"),
}
"""fresh: age of records when they became visible (p95); of: the freshness target."""
DISPENSABLE = ("p50", "average", "files", "due", "commit")
"""Left out in this order if the terminal is too narrow."""


def late(table: TableStatus) -> str:
    if table.lag_s is None or table.lag_records is None:
        return "dim"
    return "" if table.lag_s <= table.freshness_target_s else "bold yellow"


def lag_age(table: TableStatus, found: Overview) -> str:
    """The age of the oldest waiting record; if a job reported it, how long ago."""
    text = duration(table.lag_s) if table.lag_records and table.lag_s is not None else ""
    if table.lag_source == "job" and table.lag_as_of:
        ago = (found.at - datetime.fromisoformat(table.lag_as_of)).total_seconds()
        text = f"{text} {duration(max(0.0, ago))} ago".strip()
    return text
