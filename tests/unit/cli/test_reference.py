"""docs/cli.md says what the commands do, and its examples can be typed."""

from __future__ import annotations

import shlex
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group
from typer.testing import CliRunner

from cli.main import Manual, app
from tests.reference import commands, manual, reference

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
COMMANDS = {name: command for name, _, command in commands()}
PURPOSE = 110  # one line of the list of commands, on a wide terminal


def test_the_page_is_the_one_that_the_commands_write() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_explained_in_a_line_and_has_an_example(name: str) -> None:
    text = manual(COMMANDS[name])
    assert text.purpose.endswith(".")
    assert len(text.purpose) <= PURPOSE
    assert text.examples


@pytest.mark.parametrize(
    "example", [example for command in COMMANDS.values() for example in manual(command).examples]
)
def test_every_example_is_taken_by_the_parser(example: str) -> None:
    for line in example.split(" && "):
        program, *arguments = shlex.split(line)
        assert program == "calve"
        _parse(get_group(app), arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_its_sentence(name: str) -> None:
    parameters = COMMANDS[name].params
    assert [each.name for each in parameters if not getattr(each, "help", None)] == []


def test_the_screen_of_a_command_ends_with_its_examples() -> None:
    screen = CliRunner().invoke(app, ["verify", "--help"], env={"COLUMNS": "80"}).output
    examples = ["$ calve verify stock_trades", "$ calve verify stock_trades --without-kafka"]
    assert [line.strip() for line in screen.splitlines() if line.strip()][-2:] == examples


def test_a_docstring_is_taken_apart() -> None:
    text = Manual.of("""Do a thing.

        One paragraph
        of two lines with [brackets].

        Examples:
          calve do
          calve do --more
        """)
    assert text == Manual(
        "Do a thing.", ("One paragraph of two lines with [brackets].",), ("calve do", "calve do --more")
    )
    assert text.screen == "Do a thing.\n\nOne paragraph of two lines with \\[brackets]."


def test_a_docstring_without_examples_has_none() -> None:
    assert Manual.of("Do a thing.") == Manual("Do a thing.", (), ())
    assert Manual.of(None).footer is None


def _parse(command: TyperGroup | TyperCommand, arguments: list[str]) -> None:
    """Parse as the program does, without running what is named."""
    context = command.make_context(command.name, arguments)
    if isinstance(command, TyperGroup):
        _, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert isinstance(inner, TyperGroup | TyperCommand)
        _parse(inner, rest)


def test_calve_says_its_release() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert (said.exit_code, said.output) == (0, f"calve {version('calve')}\n")
