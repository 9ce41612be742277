"""Progress of work that takes more than two seconds, behind one interface."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    ProgressColumn,
    SpinnerColumn,
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


class Task:
    """One piece of work. done: the amount in all; total: None while the end is not known; note: the current activity."""

    def __init__(self, total: int | None, show: Callable[[], object]) -> None:
        self.done, self.total, self.note = 0, total, ""
        self.how: End = "done"
        self._show = show

    def update(self, done: int | None = None, *, total: int | None = None, note: str | None = None) -> None:
        """Report the amount done in all (not since the last call), and the current activity."""
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        self.note = self.note if note is None else note
        self._show()

    def end(self, how: End, note: str) -> None:
        """Report how the work ended if it did not end well."""
        self.how, self.note = how, note


class BarProgress:
    """Bars that redraw themselves on a terminal, one for each task that runs. total None: the end is not known."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._bars: Bars | None = None
        self._running = 0

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: Unit = "steps") -> Iterator[Task]:
        with self._drawn() as bars:
            bar = bars.add_task(name, total=total, note="", end=None, unit=unit)
            task = Task(
                total, lambda: bars.update(bar, completed=task.done, total=task.total, note=task.note)
            )
            yield task
            whole_work = task.total or task.done or 1
            note = task.note if task.how != "done" else ""
            bars.update(bar, total=whole_work, completed=whole_work, note=note, end=task.how)
            bars.stop_task(bar)

    @contextmanager
    def _drawn(self) -> Iterator[Bars]:
        """The bars, which all tasks that run at the same time share: a terminal has one place that moves."""
        with self._lock:
            if self._bars is None:
                whole = Column(no_wrap=True)
                noted = Column(no_wrap=True, overflow="ellipsis", max_width=24)
                self._bars = Bars(
                    _Mark(),
                    TextColumn("{task.description:<28}"),
                    BarColumn(20),
                    _Count(table_column=whole),
                    TimeElapsedColumn(table_column=whole),
                    TextColumn("[dim]{task.fields[note]}", table_column=noted),
                    console=self._console,
                )
                self._bars.start()
            self._running += 1
            bars = self._bars
        try:
            yield bars
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    bars.stop()
                    self._bars = None


class _Mark(SpinnerColumn):
    """Turns while work is under way, then shows how it ended."""

    def render(self, task: BarTask) -> RenderableType:
        return MARKS[task.fields["end"]] if task.fields["end"] else super().render(task)


class _Count(ProgressColumn):
    """`238 of 300,000`; nothing where there is only one step."""

    def render(self, task: BarTask) -> Text:
        if task.total is None or task.total <= 1:
            return Text("")
        return Text(amount(int(task.completed), int(task.total), task.fields["unit"]), "progress.download")


class LineProgress:
    """One line when work begins, every few seconds, and when it ends: for logs and pipes."""

    def __init__(self, write: Callable[[str], None], *, interval_s: float = LINE_INTERVAL_S) -> None:
        self._write, self._interval_s = write, interval_s

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: Unit = "steps") -> Iterator[Task]:
        began = written = time.monotonic()

        def show() -> None:
            nonlocal written
            if time.monotonic() - written >= self._interval_s:
                written = time.monotonic()
                self._write(
                    f"{name}: {' '.join(filter(None, (amount(task.done, task.total, unit), task.note)))}"
                )

        task = Task(total, show)
        self._write(f"{name} ...")
        yield task
        ended = "done" if task.how == "done" else f"ended, {task.note},"
        self._write(f"{name}: {ended} in {time.monotonic() - began:.1f} s")


Progress = BarProgress | LineProgress


def amount(done: int, total: int | None, unit: Unit) -> str:
    """`238 of 300,000`, without what is not known."""
    counts = [done] if done or total is not None else []
    counts += [total] if total else []
    return " of ".join(f"{count / 1e6:,.1f} MB" if unit == "bytes" else f"{count:,}" for count in counts)
