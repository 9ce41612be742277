"""Progress of work that takes more than two seconds, behind one interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bars
from rich.progress import Task as BarTask
from rich.table import Column
from rich.text import Text

Unit = Literal["bytes", "records", "steps"]
End = Literal["done", "warn", "fail"]
MARKS = {"done": Text("✓", "green"), "warn": Text("!", "bold yellow"), "fail": Text("✗", "bold red")}
LINE_INTERVAL_S = 5.0


class Task(Protocol):
    """One piece of work under way."""

    def update(self, done: int | None = None, *, total: int | None = None, note: str | None = None) -> None:
        """Report the amount done in all (not since the last call), and the current activity."""

    def end(self, how: End, note: str) -> None:
        """Report how the work ended if it did not end well."""


class Progress(Protocol):
    """Shows the progress of work."""

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: Unit = "steps") -> Iterator[Task]:
        """Show one piece of work while the block runs; `total` None means the end is not known."""


class BarProgress:
    """Bars that redraw themselves on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: Unit = "steps") -> Iterator[Task]:
        """Show a bar; it stays, complete, when the block ends well."""
        whole = Column(no_wrap=True)
        count = DownloadColumn(table_column=whole) if unit == "bytes" else _Count(table_column=whole)
        columns = (_Mark(), TextColumn("{task.description:<28}"), BarColumn(20), count)
        note = TextColumn(
            "[dim]{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis", max_width=24)
        )
        with Bars(
            *columns, TimeElapsedColumn(table_column=Column(no_wrap=True)), note, console=self._console
        ) as bars:
            bar = _Bar(bars, bars.add_task(name, total=total, note="", end=None))
            yield bar
            bar.finish()


class _Mark(SpinnerColumn):
    """Turns while work is under way, then shows how it ended."""

    def render(self, task: BarTask) -> RenderableType:
        return MARKS[task.fields["end"]] if task.fields["end"] else super().render(task)


class _Count(ProgressColumn):
    """`238 of 300,000`; nothing where there is only one step."""

    def render(self, task: BarTask) -> Text:
        if task.total is None or task.total <= 1:
            return Text("")
        return Text(f"{int(task.completed):,} of {int(task.total):,}", "progress.download")


class _Bar:
    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars, self._task = bars, task
        self._ended: tuple[End, str] = ("done", "")

    def update(self, done: int | None = None, *, total: int | None = None, note: str | None = None) -> None:
        self._bars.update(self._task, completed=done, total=total)
        if note is not None:
            self._bars.update(self._task, note=note)

    def end(self, how: End, note: str) -> None:
        self._ended = (how, note)

    def finish(self) -> None:
        task = self._bars.tasks[self._task]
        how, note = self._ended
        self._bars.update(self._task, total=task.total or task.completed or 1, note=note, end=how)
        self._bars.update(self._task, completed=self._bars.tasks[self._task].total)


class LineProgress:
    """One line when work begins, every few seconds, and when it ends: for logs and pipes."""

    def __init__(self, write: Callable[[str], None], *, interval_s: float = LINE_INTERVAL_S) -> None:
        self._write, self._interval_s = write, interval_s

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: Unit = "steps") -> Iterator[Task]:
        """Write lines until the block ends."""
        line = _Line(self._write, name, total=total, unit=unit, interval_s=self._interval_s)
        self._write(f"{name} ...")
        yield line
        self._write(f"{name}: {line.ended} in {time.monotonic() - line.began:.1f} s")


class _Line:
    def __init__(
        self, write: Callable[[str], None], name: str, *, total: int | None, unit: Unit, interval_s: float
    ) -> None:
        self.began = self._written = time.monotonic()
        self._write, self._name, self._unit, self._interval_s = write, name, unit, interval_s
        self._total, self._done, self._note = total, 0, ""
        self.ended = "done"

    def end(self, how: End, note: str) -> None:
        self.ended = f"ended, {note}," if how != "done" else self.ended

    def update(self, done: int | None = None, *, total: int | None = None, note: str | None = None) -> None:
        self._done = self._done if done is None else done
        self._total = self._total if total is None else total
        self._note = self._note if note is None else note
        if time.monotonic() - self._written >= self._interval_s:
            self._written = time.monotonic()
            self._write(f"{self._name}: {' '.join(filter(None, (self._amount(), self._note)))}")

    def _amount(self) -> str:
        if not self._done and self._total is None:
            return ""
        of = f" of {_quantity(self._total, self._unit)}" if self._total else ""
        return f"{_quantity(self._done, self._unit)}{of}"


def _quantity(count: int, unit: Unit) -> str:
    return f"{count / 1e6:,.1f} MB" if unit == "bytes" else f"{count:,}"
