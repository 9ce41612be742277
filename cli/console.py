"""The one place that prints.

People read events, progress and errors on stderr, and results on stdout. Programs read stdout: one JSON document per command with
`--output json`. Terminals get tables and bars; elsewhere each event and each row is one line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import IO, Annotated, Any

import typer
from rich.console import Console as Rich
from rich.console import RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from calve.errors import CalveError, ConfigError
from cli.progress import BarProgress, LineProgress, Progress

COMMON = "Common options"  # the panel of help screens for what most commands have
PROFILE_VARIABLE, REGION_VARIABLE = "CALVE_PROFILE", "CALVE_REGION"  # set by `--profile` and `--region`


class Output(StrEnum):
    """The format of a reading command's stdout."""

    text = "text"
    json = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="The form of the output on stdout.", rich_help_panel=COMMON)
]

SystemOption = Annotated[
    bool, typer.Option("--system", help="Show the column _kafka of `select *` on a terminal, too.")
]

STYLES = {
    **dict.fromkeys(("ok", "running", "ended", "synced", "proved", "exact", "+"), "green"),
    **dict.fromkeys(("warn", "pending", "suspended", "overdue", "unfinished", "retrying"), "yellow"),
    **dict.fromkeys(("syncing", "not verifiable", "not checked", "~", "?"), "yellow"),
    **dict.fromkeys(("starting", "paused"), "cyan"),
    **dict.fromkeys(("refused", "fail", "failed", "differs", "!"), "bold red"),
    **dict.fromkeys(("absent", "="), "dim"),
    "-": "red",
}
NOTHING = (None, "", "-")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of a tree with its children; `mark` precedes the line and sets its colour."""

    text: str
    mark: str = ""
    note: str = ""
    below: Sequence[Branch] = ()

    def lines(self, above: Sequence[str] = ()) -> Iterator[str]:
        way = [*above, " ".join(part for part in (self.mark, _escaped(self.text)) if part)]
        if self.note or not self.below:
            yield "  ".join(part for part in (*way, _escaped(self.note)) if part)
        for each in self.below:
            yield from each.lines(way)

    def grow(self, add: Callable[[Text], Tree]) -> Tree:
        """The branch and its children as rich draws them. add: makes its node."""
        style = STYLES.get(self.mark, "bold")
        mark = (f"{self.mark} ", style) if self.mark else ""
        between = "  " if self.text and self.note else ""
        label = Text.assemble(mark, (_escaped(self.text), style), between, (_escaped(self.note), "dim"))
        tree = add(label)
        for each in self.below:
            each.grow(tree.add)
        return tree


def plain(**more: Any) -> Table:
    return Table(box=None, pad_edge=False, header_style="dim", **more)


class Console:
    """Prints for one command; in JSON mode only `document` reaches stdout.

    file: gets all that two streams would get, but for progress.
    """

    def __init__(self, output: Output = Output.text, *, file: IO[str] | None = None) -> None:
        self.output = output
        self._out = Rich(highlight=False, file=file, force_terminal=False if file else None)
        self._err = Rich(stderr=True, highlight=False)
        self._said = self._out if file else self._err

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal and its format is text."""
        return self.output is Output.text and self._out.is_terminal

    @property
    def size(self) -> tuple[int, int]:
        return self._out.size.width, self._out.size.height

    def draw(self, picture: RenderableType) -> None:
        self._out.print(picture)

    @contextmanager
    def live(self) -> Iterator[Callable[[RenderableType], None]]:
        """A full screen for pictures that replace each other; the terminal's content returns after the block."""
        with Live(console=self._out, screen=True, auto_refresh=False) as live:
            yield lambda picture: live.update(picture, refresh=True)

    @cached_property
    def _progress(self) -> Progress:
        if self._err.is_terminal:
            return BarProgress(self._err)
        return LineProgress(lambda line: print(line, file=sys.stderr, flush=True))

    def progress(self) -> Progress:
        """Return bars on a terminal, else a line every few seconds; always on stderr."""
        return self._progress

    def _line(self, *parts: str, sep: str = " ") -> None:
        if self.output is Output.text:
            print(*parts, sep=sep, file=self._out.file, flush=True)

    def event(self, message: str, **fields: object) -> None:
        pairs = "  ".join(f"{name}={_escaped(_said(value))}" for name, value in fields.items() if value != [])
        if self._said.is_terminal:
            self._said.print(Text.assemble((message, "bold"), "  ", (pairs, "dim")), soft_wrap=True)
        else:
            print(f"{message}  {pairs}".rstrip(), file=self._said.file, flush=True)

    def heading(self, text: str) -> None:
        if self.is_terminal:
            self._out.print("\n", Text(text, "bold cyan"), sep="")
        else:
            self._line(f"== {text}")

    def say(self, text: str) -> None:
        if self.output is Output.text:
            self._out.print(Text(text), soft_wrap=not self._out.is_terminal)

    def table(self, name: str, rows: Sequence[Mapping[str, object]], *, title: str | None = None) -> None:
        """Show rows with the same columns; a column named `state` is coloured.

        A terminal shows `title` above them, else `name`, and leaves out empty columns.
        """
        if not self.is_terminal:
            for row in rows:
                self._line(name, "  ".join(f"{key}={_escaped(_cell(value))}" for key, value in row.items()))
            return
        filled = [key for key in rows[0] if any(row[key] not in NOTHING for row in rows)] if rows else []
        if not filled:
            return
        table = plain(title=name if title is None else title, title_justify="left", title_style="bold")
        for key in filled:
            values = [row[key] for row in rows]
            number = all(each is None or type(each) in (int, float) for each in values)
            words, broad = key.split("_"), len(key) > max(len(_cell(each)) for each in values)
            table.add_column(
                ("\n" if number and broad else " ").join(words),
                justify="right" if number else "left",
                overflow="fold",
                no_wrap=number or key == filled[0],
                min_width=max(map(len, words)),
            )
        for row in rows:
            styles = {"state": STYLES.get(str(row.get("state", "")), "")}
            table.add_row(*(Text(_escaped(_cell(row[key])), styles.get(key, "")) for key in filled))
        self._out.print(table)

    def grid(self, columns: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
        """Show all rows of texts unchanged: as a table, or as a block of lines per row if they are too wide for the terminal.
        Control characters are escaped.
        """
        if not self.is_terminal:
            for row in rows:
                pairs = zip(columns, row, strict=True)
                self._line("row", "  ".join(f"{name}={_escaped(value)}" for name, value in pairs))
            return
        cells = [[Text(_escaped(each), "dim" if each is None else "") for each in row] for row in rows]
        heads = [Text(_escaped(name)) for name in columns]
        widths = (max(each.cell_len for each in column) for column in zip(heads, *cells, strict=True))
        if sum(each + 1 for each in widths) - 1 <= self.size[0]:
            table = plain()
            for head in heads:
                table.add_column(head, overflow="fold")
            for line in cells:
                table.add_row(*line)
            self._out.print(table)
            return
        for number, line in enumerate(cells, 1):
            self._out.print(Text(f"row {number}", "bold cyan"))
            block = Table.grid(padding=(0, 1))
            block.add_column(style="dim", no_wrap=True)
            block.add_column(overflow="fold")
            for head, cell in zip(heads, line, strict=True):
                block.add_row(head, cell)
            self._out.print(block)

    def lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(line)

    def tree(self, name: str, root: Branch) -> None:
        if not self.is_terminal:
            for line in root.lines():
                self._line(name, line)
            return
        self._out.print(root.grow(lambda label: Tree(label, guide_style="dim")))

    def problems(self, kind: str, rows: Sequence[tuple[str, str, str]]) -> None:
        """Show problems with place, path and sentence; `kind`: `problem`, `warning`."""
        if rows and self.is_terminal:
            self._out.print()
        for place, path, text in ((place, _escaped(path), _escaped(text)) for place, path, text in rows):
            if not self.is_terminal:
                self._line(kind, place, path, text, sep="  ")
                continue
            style = STYLES["!" if kind == "problem" else "?"]
            self._out.print(Text.assemble((kind, style), "  ", (place, "bold"), "  ", (path, "bold")))
            self._out.print(Padding(Text(text), (0, 0, 0, 2)))

    def panel(self, title: str, lines: Mapping[str, object]) -> None:
        if not self.is_terminal:
            for name, value in lines.items():
                self._line(f"{name}: {value}")
            return
        grid = Table.grid(padding=(0, 2))
        for name, value in lines.items():
            grid.add_row(Text(name, "dim"), Text(str(value)))
        self._out.print(Panel(grid, title=title, title_align="left", expand=False))

    def quote(self, title: str, text: str) -> None:
        if self.is_terminal:
            self._out.print(Panel(Text(text.rstrip()), title=title, title_align="left", expand=False))
        else:
            self._line(f"-- {title}\n{text.rstrip()}\n--")

    def document(self, value: object) -> None:
        """Write the answer as one JSON document, in JSON mode."""
        if self.output is Output.json:
            print(json.dumps(value, indent=2, default=str), flush=True)

    def consent(self, question: str, *, yes: bool, fix: str) -> None:
        """Ask a person on stderr, and abort without a yes. yes: it was given already.

        Raises:
            ConfigError: nobody can be asked: there is no terminal, or stdout takes a document.
        """
        if yes:
            return
        if self.output is Output.json or not sys.stdin.isatty():
            raise ConfigError("this needs the consent of a person, and nobody can be asked here", fix=fix)
        typer.confirm(question, abort=True, err=True)

    def error(self, error: CalveError) -> None:
        if self._err.is_terminal:
            self._err.print(Text.assemble(("error  ", "bold red"), error.message), soft_wrap=True)
            if error.fix:
                self._err.print(Text.assemble(("fix    ", "green"), error.fix), soft_wrap=True)
        else:
            print(f"error: {error}", file=sys.stderr, flush=True)


def _escaped(value: str | None) -> str:
    return "null" if value is None else _CONTROL.sub(lambda found: repr(found[0])[1:-1], value)


def _said(value: object) -> str:
    """A boolean as JSON writes it, the items of a list one after the other, all else as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    return "; ".join(map(_said, value)) if isinstance(value, list | tuple) else str(value)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return _said(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
    return _said(value)


def ago(then: datetime | None, now: datetime) -> str:
    """`5m ago`, `in 3h`, and `-` for None."""
    if then is None:
        return "-"
    left = (then - now).total_seconds()
    return f"in {duration(left)}" if left > 1 else f"{duration(max(0.0, -left))} ago"


def duration(seconds: float) -> str:
    """`0.4s`, `59s`, `5m`, `3h12m`, `2d4h`."""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{whole}s"
