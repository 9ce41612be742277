"""docs/cli.md, written from the commands: `python -m tests.reference > docs/cli.md`."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from cli.console import COMMON
from cli.main import CONTENTS, Manual, called

HEAD = """\
# Commands

*Reference*

<!-- Written by `python -m tests.reference`; change the commands' docstrings and options instead. -->

`calve COMMAND --help` says the same on a terminal.

Exit codes: 0 done, 1 failed or found at fault, 2 misused: a wrong option, or an invalid configuration. On a terminal
there are tables and bars, elsewhere one line per fact; with `--output json` one JSON document on stdout, and all else on stderr.
"""
COMMON_OPTIONS = """\
Most commands take

| common option | meaning | default |
| --- | --- | --- |
| `--config`, `-c` | the configuration, or the variable `CALVE_CONFIG` | `calve.yaml`, looked for upwards |
| `--env` | lays `calve.ENV.yaml` over it, or the variable `CALVE_ENV` | |
| `--profile` | work on the account of this AWS profile, or the variable `CALVE_PROFILE` | the embedded stack |
| `--region` | work in this AWS region, or the variable `CALVE_REGION` | `lake.region`, `AWS_REGION`, the profile's |
| `--output`, `-o` | what to write on stdout | `text` |
"""
WIDTH = 130
OPTIONS = ["| argument or option | meaning | default |", "| --- | --- | --- |"]


def commands(group: TyperGroup | None = None, path: str = "calve") -> Iterator[tuple[str, str, TyperCommand]]:
    """Each command with its full name and the panel of it or its group."""
    found = group.commands if group else {name: called(name) for each in CONTENTS.values() for name in each}
    for name, command in found.items():
        full, panel = f"{path} {name}", str(getattr(command, "rich_help_panel", ""))
        if isinstance(command, TyperGroup):
            yield from ((each, panel, inner) for each, _, inner in commands(command, full))
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield full, panel, command


def manual(command: TyperCommand) -> Manual:
    """The manual in the command's own docstring."""
    function = command.callback
    return Manual.of(inspect.unwrap(function).__doc__ if function else None)


def reference() -> str:
    found = list(commands())
    panels = list(dict.fromkeys(panel for _, panel, _ in found))
    return "\n".join(
        [
            HEAD,
            *(line for panel in panels for line in _contents(panel, found)),
            COMMON_OPTIONS,
            *("\n".join(_command(name, command)) for name, _, command in found),
        ]
    )


def _contents(panel: str, found: list[tuple[str, str, TyperCommand]]) -> Iterator[str]:
    yield f"| {panel} | |"
    yield "| --- | --- |"
    for name, its_panel, command in found:
        if its_panel == panel:
            yield f"| [`{name}`](#{name.replace(' ', '-')}) | {_cell(manual(command).purpose.rstrip('.'))} |"
    yield ""


def _command(name: str, command: TyperCommand) -> Iterator[str]:
    text = manual(command)
    yield f"## `{name}`"
    yield ""
    yield "\n\n".join(
        textwrap.fill(each, WIDTH, break_on_hyphens=False) for each in (text.purpose, *text.paragraphs)
    )
    yield ""
    yield "```console"
    yield from (f"$ {example}" for example in text.examples)
    yield "```"
    yield ""
    context = command.context_class(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context)).replace("{", "").replace("}", "")
    yield f"Usage: `{name} {usage}`"
    yield ""
    own = [
        each
        for each in command.params
        if isinstance(each, TyperArgument | TyperOption) and each.rich_help_panel != COMMON
    ]
    if own:
        yield from OPTIONS
        yield from (_parameter(each) for each in own)
        yield ""


def _parameter(parameter: TyperArgument | TyperOption) -> str:
    names = [parameter.metavar or parameter.name] if isinstance(parameter, TyperArgument) else parameter.opts
    meaning = (parameter.help or "").rstrip(".")
    shown = " or ".join(f"`{each}`" for each in names)
    return f"| {shown} | {_cell(meaning)} | {_default(parameter)} |"


def _default(parameter: TyperArgument | TyperOption) -> str:
    if parameter.required:
        return "**required**"
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    flag = isinstance(parameter, TyperOption) and parameter.is_flag
    return "" if flag or not parameter.show_default or parameter.default is None else f"`{parameter.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
