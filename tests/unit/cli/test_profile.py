"""`--profile` and `--region` name the account and the region that a command works on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import boto3
import pytest
import typer
from typer.testing import CliRunner

from calve.errors import ConfigError
from cli.config import embedded_stack
from cli.console import PROFILE_VARIABLE, REGION_VARIABLE
from cli.main import KEY_VARIABLES, app, explain
from tests.reference import commands

if TYPE_CHECKING:
    from pathlib import Path

NEVER = {"calve datagen"}
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION", REGION_VARIABLE)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of one account in the environment, a profile of another in the files, and an embedded stack that runs."""
    (tmp_path / "credentials").write_text(
        "[prod]\naws_access_key_id = OF_PROD\naws_secret_access_key = secret\n"
    )
    (tmp_path / "config").write_text("[profile prod]\nregion = eu-west-3\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in (*KEY_VARIABLES, *REGIONS, "AWS_PROFILE", PROFILE_VARIABLE):
        monkeypatch.setenv(name, "elsewhere")
    for name in (*REGIONS, "AWS_PROFILE", PROFILE_VARIABLE):
        monkeypatch.delenv(name)
    monkeypatch.setattr("cli.config.current", lambda _: "the embedded stack")


def one(environment: None) -> typer.Typer:
    made = typer.Typer()

    @made.command()
    def where(env: str | None = None) -> None:
        session = boto3.Session()
        credentials = session.get_credentials()
        typer.echo(f"{credentials and credentials.access_key} {session.region_name} {embedded_stack()}")

    explain(made)
    return made


@pytest.mark.usefixtures("environment")
def test_a_profile_goes_before_keys_of_the_environment_and_the_embedded_stack() -> None:
    where = one(None)
    assert CliRunner().invoke(where, ["--profile", "prod"]).output == "OF_PROD eu-west-3 None\n"
    os.environ.pop("AWS_PROFILE")
    os.environ.pop(PROFILE_VARIABLE)
    assert CliRunner().invoke(where, [], env={PROFILE_VARIABLE: "prod"}).output == "OF_PROD eu-west-3 None\n"


@pytest.mark.usefixtures("environment")
def test_without_a_profile_nothing_changes() -> None:
    answer = CliRunner().invoke(one(None), [])
    assert answer.output.startswith("elsewhere ")
    assert answer.output.endswith(" the embedded stack\n")


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("arguments", [["status"], ["plan"], ["export", "list"], ["query", "select 1"]])
def test_a_profile_that_does_not_exist_is_named(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = CliRunner().invoke(app, [*arguments, "--profile", "prd"])
    assert isinstance(answer.exception, ConfigError)
    assert (answer.exception.message, answer.exception.fix) == (
        'this machine has no AWS profile "prd"',
        'use "prod"',
    )
    monkeypatch.setenv("AWS_PROFILE", "nosuch")
    answer = CliRunner().invoke(app, arguments)
    assert isinstance(answer.exception, ConfigError)
    assert "list-profiles" in (answer.exception.fix or "")


@pytest.mark.usefixtures("environment")
def test_a_region_goes_before_that_of_the_profile() -> None:
    answer = CliRunner().invoke(one(None), ["--profile", "prod", "--region", "ap-south-2"])
    assert answer.output == "OF_PROD ap-south-2 None\n"


@pytest.mark.usefixtures("environment")
def test_a_region_that_is_not_that_of_calve_yaml_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "calve.yaml"
    address = "kafka: {bootstrap_servers: 'k:1'}\nregistry: {url: 'https://r'}\n"
    file.write_text(
        f"name: shop\n{address}lake: {{region: eu-west-1}}\ntables: {{orders: {{topic: orders}}}}\n"
    )
    for command in ("status", "plan"):
        words = [command, "-c", str(file), "--profile", "prod", "--region", "eu-west-2"]
        answer = CliRunner().invoke(app, words)
        assert isinstance(answer.exception, ConfigError)
        assert answer.exception.message == f"--region is eu-west-2, and {file} is for eu-west-1"


def test_every_command_that_reads_the_configuration_takes_a_profile() -> None:
    for name, _, command in commands():
        options = {each.name for each in command.params}
        assert ("profile" in options) == ("env" in options and name not in NEVER), name
        assert "profile" not in options or "region" in options, name
    assert app.registered_commands
