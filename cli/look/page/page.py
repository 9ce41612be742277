"""Self-contained HTML pages: deployments side by side, all tables of one, one table. They hold no value of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from calve.errors import CalveError
from cli.console import ago, duration
from cli.look.health import TableStatus, urgency
from cli.look.status.one_table import SCHEMA_COLUMNS, long_facts, schema_line, short_facts
from cli.look.status.overview import Overview, lines
from cli.look.status.screen import lag_age, links, seconds, short, size

FOLDER = Path(__file__).parent
COMMITS = 50
STATE, WARN, NUMBER, NAMED = "state", "warn", "number", "named"


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


def _all_rejected(found: Overview) -> int:
    return sum(map(_rejected, found.tables))


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


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the pages are; None: there is no such page. home: of all deployments. deployment: of this one, below `home`."""

    home: str = "#"
    deployment: str | None = None
    table: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One of several deployments. found: None if it could not be looked at, for a problem."""

    label: str
    href: str
    found: Overview | None
    problem: CalveError | None = None


def page(found: Overview, at: Addresses = Addresses()) -> str:
    """The page of a deployment; with a history, that of its table."""
    return table_page(found, at) if found.history and found.tables else list_page(found, at)


def several_page(deployments: Sequence[Side], now: datetime) -> str:
    """All deployments side by side: the troubles and the figures of each."""
    return _rendered(
        "several", title="deployments", at=now, home="/", way=[("deployments", None)], deployments=deployments
    )


def list_page(found: Overview, at: Addresses) -> str:
    return _rendered(
        "list",
        title=found.name,
        at=found.at,
        home=at.home,
        way=[(found.name, None)],
        found=found,
        states=Counter(each.state for each in found.tables).most_common(),
        heads=COLUMNS,
        listed=[_row(each, found, at.table) for each in _sorted(found)],
        ago=lambda moment: ago(datetime.fromisoformat(moment), found.at) if moment else "-",
        links=links,
    )


def table_page(found: Overview, at: Addresses) -> str:
    [table] = found.tables
    plots = _plots(found, table)
    return _rendered(
        "table",
        plotted=bool(plots),
        title=table.name,
        at=found.at,
        home=at.home,
        way=[(found.name, at.deployment), (table.name, None)],
        found=found,
        table=table,
        facts=[*short_facts(table, found), *long_facts(table, found)],
        plots=plots,
        rounds=_rounds(found),
        schemas=[schema_line(each) for each in found.history.schemas] if found.history else [],
        schema_columns=SCHEMA_COLUMNS,
        cell=_cell,
    )


def _rendered(template: str, *, plotted: bool = False, **given: object) -> str:
    css = _asset("page.css") + (_asset("uplot.css") if plotted else "")
    script = (_asset("uplot.js") if plotted else "") + _asset("page.js")
    made: str = _templates().get_template(f"{template}.html").render(**given, css=css, script=script)
    return made


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    made.globals |= {
        "short": short,
        "size": size,
        "dead_letters": _all_rejected,
    }
    return made


@cache
def _asset(name: str) -> Markup:
    return Markup((FOLDER / name).read_text(encoding="utf-8"))  # noqa: S704 a file of ours


def _sorted(found: Overview) -> list[TableStatus]:
    return sorted(found.tables, key=lambda each: urgency(each, found.at))


def _row(table: TableStatus, found: Overview, link: Callable[[str], str] | None) -> dict[str, Any]:
    cells = []
    for column in COLUMNS:
        kinds = [STATE, table.state] if column.title == STATE else []
        kinds += [NAMED] if column.title == "table" else []
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
