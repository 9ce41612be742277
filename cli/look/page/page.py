"""One self-contained HTML page of an overview: all tables, or one with its history. It holds no value of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cli.console import duration
from cli.look.health import TableStatus, urgency
from cli.look.status.overview import Overview, lines
from cli.look.status.screen import lag_age, seconds, short, size

FOLDER = Path(__file__).parent
MOST_TROUBLES = 50
COMMITS = 50
STATE, WARN, NUMBER = "state", "warn", "number"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the list. text: what a person reads; sort: what the column is sorted by; late: whether it is marked."""

    title: str
    text: Callable[[TableStatus, Overview], str]
    sort: Callable[[TableStatus], str | float]
    late: Callable[[TableStatus], bool] = lambda _: False

    @property
    def number(self) -> bool:
        return self.title not in ("table", "state", "due")


def _rejected(table: TableStatus) -> int:
    return sum(table.dead_letters.values())


def _is_late(table: TableStatus) -> bool:
    return table.lag_s is not None and table.lag_s > table.freshness_target_s


COLUMNS = (
    Column("table", lambda table, _: table.name, lambda table: table.name),
    Column("state", lambda table, _: table.state, lambda table: table.state),
    Column(
        "lag",
        lambda table, _: "-" if table.lag_records is None else short(table.lag_records),
        lambda table: table.lag_records or 0,
        _is_late,
    ),
    Column("oldest", lag_age, lambda table: table.lag_s or 0, _is_late),
    Column(
        "fresh (p95)",
        lambda table, _: seconds(table.freshness_p95_s or table.freshness_s),
        lambda table: table.freshness_p95_s or table.freshness_s or 0,
        lambda table: bool(table.freshness_missed),
    ),
    Column(
        "promised",
        lambda table, _: duration(table.freshness_target_s),
        lambda table: table.freshness_target_s,
    ),
    Column("rows", lambda table, _: short(table.rows), lambda table: table.rows),
    Column(
        "dead letters",
        lambda table, _: short(_rejected(table)),
        _rejected,
        lambda table: bool(table.dead_letters),
    ),
    Column(
        "files",
        lambda table, _: (
            short(table.files) + (f" + {short(table.delete_files)} deletes" if table.delete_files else "")
        ),
        lambda table: table.files,
    ),
    Column("size", lambda table, _: size(table.bytes), lambda table: table.bytes),
    Column(
        "committed",
        lambda table, _: seconds(table.commit_age_s),
        lambda table: -1 if table.commit_age_s is None else table.commit_age_s,
    ),
    Column("due", lambda table, _: ", ".join(each.kind for each in table.due), lambda table: len(table.due)),
)


def page(found: Overview, name: str, *, link: Callable[[str], str] | None = None, home: str = "#") -> str:
    """The page. link: the address of a table's own page; None: there is none. home: that of the list."""
    table = found.tables[0] if found.history and found.tables else None
    dead_letters = sum(map(_rejected, found.tables))
    plots = _plots(found, table) if table else []
    rendered: str = _template().render(
        title=f"{table.name if table else name} - calve",
        name=name,
        home=home,
        found=found,
        table=table,
        troubles=found.troubles,
        most=MOST_TROUBLES,
        rows=sum(each.rows for each in found.tables),
        bytes=sum(each.bytes for each in found.tables),
        files=sum(each.files for each in found.tables),
        lag=sum(each.lag_records or 0 for each in found.tables),
        letters=dead_letters,
        states=Counter(each.state for each in found.tables).most_common(),
        heads=COLUMNS,
        listed=[] if table else [_row(each, found, link) for each in _sorted(found)],
        facts=_facts(found, table) if table else [],
        plots=plots,
        rounds=_rounds(found),
        css=_asset("page.css") + (_asset("uplot.css") if plots else ""),
        script=(_asset("uplot.js") if plots else "") + _asset("page.js"),
        short=short,
        size=size,
        cell=_cell,
    )
    return rendered


@cache
def _template() -> Any:
    made = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return made.get_template("page.html")


@cache
def _asset(name: str) -> Markup:
    return Markup((FOLDER / name).read_text(encoding="utf-8"))  # noqa: S704 a file of ours


def _sorted(found: Overview) -> list[TableStatus]:
    return sorted(found.tables, key=lambda each: urgency(each, found.at))


def _row(table: TableStatus, found: Overview, link: Callable[[str], str] | None) -> dict[str, Any]:
    cells = []
    for column in COLUMNS:
        kinds = [table.state] if column.title == STATE else []
        kinds += [STATE] if column.title == STATE else []
        kinds += [NUMBER] if column.number else []
        kinds += [WARN] if column.late(table) else []
        cells.append(
            {
                "head": column.title,
                "text": column.text(table, found),
                "sort": column.sort(table),
                "kind": " ".join(kinds),
            }
        )
    text = f"{table.table} {table.topic} {table.state}".lower()
    return {"state": table.state, "text": text, "cells": cells, "href": link(table.name) if link else ""}


def _facts(found: Overview, table: TableStatus) -> list[tuple[str, str]]:
    lag = "not known" if table.lag_records is None else f"{table.lag_records:,} records"
    fresh = f"{seconds(table.freshness_p50_s)} p50, {seconds(table.freshness_p95_s)} p95"
    average = f", {size(table.bytes / table.files)} on average" if table.files else ""
    facts = [
        ("state", table.state + (f" since {table.since[:16].replace('T', ' ')} UTC" if table.since else "")),
        ("topic", table.topic),
        ("lag", ", the oldest for ".join(filter(None, (lag, lag_age(table, found))))),
        ("freshness", f"{fresh} of {duration(table.freshness_target_s)} promised"),
        ("rows", f"{table.rows:,}"),
        ("files", f"{table.files:,}{average}, {table.delete_files:,} delete files"),
        ("size", size(table.bytes)),
        ("committed", "never" if table.commit_age_s is None else f"{duration(table.commit_age_s)} ago"),
        ("snapshots", f"{table.snapshots:,}"),
        ("job", table.job),
    ]
    facts += [("due", f"{each.kind}: {each.why}") for each in table.due]
    facts += [("waits", f"a {each.request} since {each.at}") for each in table.waiting]
    return facts + [(each.target, f"{each.state} {each.reason or ''}") for each in found.published]


def _plots(found: Overview, table: TableStatus) -> list[tuple[str, str, list[list[float]], float | None]]:
    """Id, title, times and seconds, and the promise, of each figure that has at least two values."""
    history = found.history
    if history is None:
        return []
    fresh = history.figures("freshness_p95_s") or history.figures("freshness_s")
    figures = [
        ("lag", "Oldest record left by each commit", history.figures("lag_s"), None),
        ("fresh", "Age of records when they became visible", fresh, table.freshness_target_s),
    ]
    return [
        (id, title, [[at.timestamp() for at, _ in points], [value for _, value in points]], promise)
        for id, title, points, promise in figures
        if len(points) > 1
    ]


def _rounds(found: Overview) -> list[dict[str, object]]:
    """The newest commits; columns that say nothing are left out."""
    rows = list(lines(found.history, COMMITS)) if found.history else []
    filled = [
        head for head in (rows[0] if rows else ()) if head != "snapshot" and any(row[head] for row in rows)
    ]
    return [{head: row[head] for head in filled} for row in rows]


def _cell(head: str, value: object) -> str:
    if value in (None, 0, ""):
        return "-"
    if head == "bytes" and isinstance(value, int | float):
        return size(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)
