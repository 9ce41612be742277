"""What a deployed definition becomes on this machine."""

from __future__ import annotations

import pytest

from calve.errors import ConfigError
from cli.run.jobs import Definition
from cli.spark import parse_conf


class Glue:
    """Glue's answer to GetJobs."""

    def get_jobs(self):
        return {
            "Jobs": [
                {
                    "Name": "trading-main",
                    "Role": "arn:aws:iam::111122223333:role/main",
                    "Command": {"ScriptLocation": "s3://code/1.py"},
                    "DefaultArguments": {
                        "--conf": "a=1 --conf b=-Dx=y -Dz=--conf-like",
                        "--extra-py-files": "s3://code/2.zip,s3://code/3.zip",
                        "--settings-file": "main.json",
                    },
                }
            ]
        }


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1 --conf b=2", {"a": "1", "b": "2"}),
        ("a=-Dx=1 -Dy=2   --conf  b=c d", {"a": "-Dx=1 -Dy=2", "b": "c d"}),
        ("--conf a=1 --conf b=", {"a": "1", "b": ""}),
    ],
)
def test_settings_chained_in_one_argument_are_told_apart(text: str, settings: dict[str, str]) -> None:
    assert parse_conf(text) == settings


def test_the_script_sees_its_own_arguments_and_those_of_this_run() -> None:
    definition = Definition.deployed(Glue(), "trading-main")
    assert definition.script == "s3://code/1.py"
    assert parse_conf(definition.arguments["--conf"]) == {"a": "1", "b": "-Dx=y -Dz=--conf-like"}
    assert definition.files("--extra-py-files") == ["s3://code/2.zip", "s3://code/3.zip"]
    assert definition.files("--extra-files") == []
    words = definition.script_arguments({"--drain": "true"})
    seen = dict(zip(words[::2], words[1::2], strict=True))
    assert seen.pop("--JOB_RUN_ID").startswith("jr_")
    assert seen == {"--JOB_NAME": "trading-main", "--settings-file": "main.json", "--drain": "true"}


def test_a_job_that_is_not_deployed_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigError) as caught:
        Definition.deployed(Glue(), "main")
    assert caught.value.fix == "use one of trading-main"
