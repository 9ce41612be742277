"""Progress of work that takes more than two seconds, behind one interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
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
    """A bar that redraws itself on a terminal, while the block of a task runs. total None: the end is not known."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def task(self, name: str, *, total: int | None = None, unit: Unit = "steps") -> Iterator[Task]:
        whole = Column(no_wrap=True)
        noted = Column(no_wrap=True, overflow="ellipsis", max_width=24)
        columns = (
            _Mark(),
            TextColumn("{task.description:<28}"),
            BarColumn(20),
            DownloadColumn(table_column=whole) if unit == "bytes" else _Count(table_column=whole),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TextColumn("[dim]{task.fields[note]}", table_column=noted),
        )
        with Bars(*columns, console=self._console) as bars:
            bar = bars.add_task(name, total=total, note="", end=None)
            task = Task(
                total, lambda: bars.update(bar, completed=task.done, total=task.total, note=task.note)
            )
            yield task
            whole_work = task.total or task.done or 1
            note = task.note if task.how != "done" else ""
            bars.update(bar, total=whole_work, completed=whole_work, note=note, end=task.how)


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
                self._write(f"{name}: {' '.join(filter(None, (_amount(task, unit), task.note)))}")

        task = Task(total, show)
        self._write(f"{name} ...")
        yield task
        ended = "done" if task.how == "done" else f"ended, {task.note},"
        self._write(f"{name}: {ended} in {time.monotonic() - began:.1f} s")


Progress = BarProgress | LineProgress


def _amount(task: Task, unit: Unit) -> str:
    """`238 of 300,000`, without what is not known."""
    counts = [task.done] if task.done or task.total is not None else []
    counts += [task.total] if task.total else []
    return " of ".join(f"{count / 1e6:,.1f} MB" if unit == "bytes" else f"{count:,}" for count in counts)
