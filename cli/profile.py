"""`--profile`: the AWS account that a command works on, in the place of the embedded stack and of keys in the environment."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from calve.errors import ConfigError
from calve.names import nearest
from cli.console import COMMON

VARIABLE = "CALVE_PROFILE"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""boto3 would take these from the environment, and not ask the profile."""


def use(name: str | None) -> None:
    """Work on the account of a profile, whatever else the environment says; None: nothing changes.

    Raises:
        ConfigError: there is no such profile, or none of the name that AWS_PROFILE has.
    """
    if wanted := name or os.environ.get("AWS_PROFILE"):
        _require(wanted)
    if name:
        os.environ[VARIABLE] = os.environ["AWS_PROFILE"] = name
        for key in KEYS:
            os.environ.pop(key, None)


def _require(name: str) -> None:
    from botocore.session import Session

    known = Session(profile=name).full_config["profiles"]
    if name not in known:
        near = nearest(name, known)
        fix = f'use "{near}"' if near else "`aws configure list-profiles` shows those that there are"
        raise ConfigError(f'this machine has no AWS profile "{name}"', fix=fix)


ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help=f"Work on the account of this AWS profile, or of the variable {VARIABLE}.",
        envvar=VARIABLE,
        show_envvar=False,
        expose_value=False,
        callback=use,
        rich_help_panel=COMMON,
    ),
]


class InAccount(TyperCommand):
    """A command that takes `--profile` beside its own options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        alone = typer.Typer(add_completion=False)
        alone.command()(_profile)
        self.params += typer.main.get_command(alone).params


def _profile(profile: ProfileOption = None) -> None:
    """Stands for a command that has this option alone."""


def offer(app: typer.Typer, *, but: Collection[Callable[..., Any]] = ()) -> None:
    """Have all commands of an app that read calve.yaml take `--profile`. but: those that have no account to work on."""
    for command in app.registered_commands:
        function = command.callback
        if function and function not in but and "env" in inspect.signature(function).parameters:
            command.cls = InAccount
    for group in app.registered_groups:
        if group.typer_instance:
            offer(group.typer_instance, but=but)


def is_named() -> bool:
    """Whether a profile was named for this command."""
    return bool(os.environ.get(VARIABLE))
