"""What a command's docstring says: one line, more sentences, and examples; help screens and docs/cli.md are written from it.

The examples are the lines under `Example:` or `Examples:`, the docstring's last paragraph.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.markup import escape

if TYPE_CHECKING:
    import typer

EXAMPLES = re.compile(r"(?:\A|\n\n)Examples?:\n(?P<lines>(?:[ ]+\S.*\n?)+)\Z")


@dataclass(frozen=True)
class Manual:
    """A command, explained."""

    purpose: str
    paragraphs: tuple[str, ...]
    examples: tuple[str, ...]

    @classmethod
    def of(cls, docstring: str | None) -> Manual:
        text = inspect.cleandoc(docstring or "")
        found = EXAMPLES.search(text)
        prose = text[: found.start()] if found else text
        purpose, *paragraphs = (" ".join(each.split()) for each in prose.split("\n\n"))
        examples = found["lines"].splitlines() if found else []
        return cls(purpose, tuple(paragraphs), tuple(each.strip() for each in examples))

    @property
    def screen(self) -> str:
        """The prose of the help screen, which breaks lines by the terminal's width."""
        return "\n\n".join(escape(each) for each in (self.purpose, *self.paragraphs))

    @property
    def footer(self) -> str | None:
        """The examples of the help screen."""
        if not self.examples:
            return None
        return "\n".join(f"[dim]$[/dim] {escape(each)}" for each in self.examples)


def explain(app: typer.Typer) -> None:
    """Give every command of an app the help screen that its docstring makes."""
    for command in app.registered_commands:
        manual = Manual.of(command.callback.__doc__ if command.callback else None)
        command.help, command.epilog = manual.screen, manual.footer
    for group in app.registered_groups:
        if group.typer_instance:
            explain(group.typer_instance)
