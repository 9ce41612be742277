"""The words of job definitions, as Glue's launch logs show them to be split."""

import os
import re

import pytest

from calve.errors import ConfigError
from glue_jobs import ingest, maintain
from tests.standins.hostile_glue.words import FILES, SWITCH, Refused, launched
from tests.synth.conftest import text

STACKS = ("trading-ingest", "trading-maintenance", "streams-ingest", "guest-ingest")


def jobs(synthesized):
    """Each job's arguments, `x` for what only a deploy knows, and a settings file that is there and empty."""
    for stack in STACKS:
        for job in synthesized.find(stack, "AWS::Glue::Job").values():
            given = {key: re.sub("<[^>]*>", "x", text(each)) for key, each in job["DefaultArguments"].items()}
            yield stack, given | {"--settings-file": os.devnull, "--JOB_NAME": job["Name"]}


def test_glue_finds_each_setting_and_each_file_of_a_definition(synthesized):
    for _, arguments in jobs(synthesized):
        launch = launched(arguments)
        given = arguments["--conf"].split(" --conf ")
        assert [f"{name}={value}" for name, value in launch.conf.items()] == given
        assert {option: ",".join(uris) for option, uris in launch.files.items()} == {
            option: arguments[option] for option in ("--extra-py-files", "--extra-jars", "--extra-files")
        }


def test_the_script_takes_the_words_that_are_left(synthesized):
    for stack, arguments in jobs(synthesized):
        words = launched(arguments).script_arguments
        assert "true" in words  # what Glue's own switches leave behind
        named = {each for each in words if each.startswith("--")}
        assert named == {
            each for each in arguments if each not in ("--conf", *FILES) and not SWITCH.fullmatch(each)
        }
        with pytest.raises(ConfigError, match="the settings cannot be used"):  # and not: does not take
            (maintain if stack.endswith("maintenance") else ingest)._read(words)


def test_words_are_split_where_there_is_a_space_whatever_the_quotes():
    launch = launched(
        {"--conf": "spark.a='x --conf spark.b=y'", "--enable-metrics": "true", "--drain": "true"}
    )
    assert launch.conf == {"spark.a": "'x", "spark.b": "y'"}
    assert launch.script_arguments == ["true", "--drain", "true"]


def test_an_argument_that_is_an_option_of_spark_never_reaches_the_script():
    launch = launched({"--packages": "packages.zip", "--name": "n", "--packages-file": "packages.zip"})
    assert launch.script_arguments == ["--packages-file", "packages.zip"]
    assert launch.conf == {}


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("--conf", "spark.driver.extraJavaOptions=-Dx=1 -Dy=2", "Unrecognized option '-Dy=2'"),
        ("--extra-py-files", "s3://b/a.zip, s3://b/c.zip", "Cannot load main class from s3://b/c.zip"),
        ("--bootstrap-servers", "a:9092, b:9092", "Cannot load main class from b:9092"),
        ("--conf", "spark.a", "Spark config without '=': spark.a"),
    ],
)
def test_a_word_too_many_ends_the_run(argument, value, said):
    with pytest.raises(Refused, match=said):
        launched({argument: value})
