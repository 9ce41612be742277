"""`calve status --watch`: the screen, drawn again whenever something new is known."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from calve.errors import CalveError
from cli.look.status.screen import screen
from cli.look.status.table_screen import inside

if TYPE_CHECKING:
    from cli.console import Console
    from cli.look.status.overview import Overview

EVERY_S = 3.0
LISTEN_S = 0.2
QUIT = "q"


def drawn(found: Overview, width: int, height: int | None = None) -> RenderableType:
    """The screen of one table with its history, or of all."""
    return (inside if found.history else screen)(found, width, height)


def watch(console: Console, look: Callable[[], Overview]) -> None:
    """Look and draw until somebody presses q or Ctrl-C; what cannot be looked at is said, and looked at again."""
    with ThreadPoolExecutor(1) as pool, console.live() as draw, _keys() as pressed:
        picture: RenderableType = Text("looking ...", "dim")
        looking: Future[Overview] | None = pool.submit(look)
        size, due = (0, 0), 0.0
        found: Overview | None = None
        problem: CalveError | None = None
        try:
            while pressed(LISTEN_S) != QUIT:
                news = looking is not None and looking.done()
                if looking is not None and news:
                    found, problem = _result(looking, found)
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


def _result(looking: Future[Overview], before: Overview | None) -> tuple[Overview | None, CalveError | None]:
    try:
        return looking.result(), None
    except CalveError as error:
        return before, error


def _picture(found: Overview | None, problem: CalveError | None, width: int, height: int) -> RenderableType:
    parts: list[RenderableType] = []
    problems = [problem] if problem else []
    problems += found.problems if found else []
    for each in problems:
        parts.append(Text(f"{each.message} → {each.fix}" if each.fix else each.message, "yellow"))
    if found:
        parts.append(drawn(found, width, height - len(parts) - 1))
    return Group(*parts, Text("q ends", "dim"))


@contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """A way to wait for a key; where nobody can press one, to wait."""
    if not sys.stdin.isatty():
        yield lambda patience_s: time.sleep(patience_s)
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(patience_s: float) -> str | None:
    ready, _, _ = select.select([sys.stdin], [], [], patience_s)
    return sys.stdin.read(1) if ready else None
