"""`calve status`: the health of each table, what is wrong and how to fix it; `--watch` draws it again and again."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from calve.errors import CalveError, ConfigError
from cli.config import Common, TablesArgument
from cli.console import Console, duration
from cli.exports import Delivered
from cli.look.health import TableStatus, Trouble
from cli.look.status.one_table import table_screen
from cli.look.status.overview import Overview, lines, look
from cli.look.status.screen import MOST_TROUBLES, alarming, links, screen

WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Draw the screen again every few seconds, until q or Ctrl-C.")
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write it as a page for a browser: one file that loads nothing."
    ),
]
EVERY_S = 3.0
LISTEN_S = 0.2


def status(
    tables: TablesArgument = None,
    *,
    watch: WatchOption = False,
    html: HtmlOption = None,
    given: Common,
) -> None:
    """Show problems and fixes, then the health of every table; of one table, also its history.

    Kafka is asked where it can be reached; elsewhere, lag is what the jobs reported last.

    Examples:
      calve status
      calve status --watch
      calve status stock_trades --output json
      calve status --html status.html
    """
    console = given.console
    if watch and not console.is_terminal:
        raise ConfigError(
            "--watch draws on a terminal, and there is none", fix="leave it out; -o json is for programs"
        )
    if watch:
        watch_screen(console, lambda: look(given.config, given.env, tables or ()))
        return
    found = look(given.config, given.env, tables or ())
    for each in found.problems:
        console.error(each)
    if html:
        write_page(found, html)
        console.event("wrote", page=html)
    elif console.is_terminal:
        console.draw(drawn(found, console.size[0]))
    else:  # a log or a pipe: one line per problem and per table
        say(console, found.troubles)
        console.table("status", [_line(each) for each in found.tables])
        published = [
            {
                "table": each.table,
                "target": each.target,
                "state": each.state,
                "since": datetime.fromtimestamp(each.since_ms / 1000, UTC).isoformat(timespec="seconds"),
                "snapshot": each.snapshot_id,
                "lag": None if each.lag_s is None else duration(each.lag_s),
                "reason": each.reason,
            }
            for each in found.published
        ]
        console.table("published", published)
        console.table("export", [_export_line(each) for each in found.exports])
        if found.history:
            console.table("snapshot", list(lines(found.history, len(found.history.snapshots))))
            console.table("state", [asdict(each) for each in found.history.states])
            console.table("done", [asdict(each) for each in found.history.done])
    console.document(found.document)


def write_page(found: Overview, file: Path) -> None:
    """Write the page. Raises ConfigError: the file cannot be written."""
    from cli.look.page.page import page

    try:
        file.write_text(page(found), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}", fix="name another file") from None


def say(console: Console, troubles: Sequence[Trouble]) -> None:
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


def _export_line(export: Delivered) -> dict[str, object]:
    return asdict(export) | {"links": links(export)}


def drawn(found: Overview, width: int, height: int | None = None) -> RenderableType:
    """The screen of one table with its history, or of all."""
    return (table_screen if found.history else screen)(found, width, height)


def watch_screen(console: Console, look: Callable[[], Overview]) -> None:
    """Draw until a key q or Ctrl-C; errors are shown, and the next look follows."""
    with ThreadPoolExecutor(1) as pool, console.live() as draw, _keys() as pressed:
        picture: RenderableType = Text("looking ...", "dim")
        looking: Future[Overview] | None = pool.submit(look)
        size, due = (0, 0), 0.0
        found: Overview | None = None
        problem: CalveError | None = None
        try:
            while pressed(LISTEN_S) != "q":
                news = looking is not None and looking.done()
                if looking is not None and news:
                    try:
                        found, problem = looking.result(), None
                    except CalveError as error:
                        problem = error
                    looking, due = None, time.monotonic() + EVERY_S
                if looking is None and time.monotonic() >= due:
                    looking = pool.submit(look)
                if news or size != console.size:
                    size = console.size
                    if found or problem:
                        picture = _picture(found, problem, *size)
                    draw(picture)
        except KeyboardInterrupt:
            return


def _picture(found: Overview | None, problem: CalveError | None, width: int, height: int) -> RenderableType:
    problems = [*([problem] if problem else []), *(found.problems if found else [])]
    parts: list[RenderableType] = [
        Text(f"{each.message} → {each.fix}" if each.fix else each.message, "yellow") for each in problems
    ]
    if found:
        parts.append(drawn(found, width, height - len(parts) - 1))
    return Group(*parts, Text("q ends", "dim"))


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """A function that waits for a key; without a terminal it only waits."""
    if not sys.stdin.isatty():
        yield lambda patience_s: time.sleep(patience_s)
        return
    import termios
    import tty

    def pressed(patience_s: float) -> str | None:
        return sys.stdin.read(1) if select.select([sys.stdin], [], [], patience_s)[0] else None

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
