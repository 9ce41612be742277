"""How Glue reads a job's arguments.

Launch logs (apache/hudi issue 5291 and 7451, toryas/serverless-glue issue 52) show one list of words without quotes. Its Spark
settings become `-Dspark.x=y` of a JVM that runs the script, so no setting reaches the options of that JVM. Glue's own switches
disappear, and their values stay. awsdocs/aws-glue-developer-guide issue 44 shows a stray word: it is taken for the application.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyspark

SPARK = Path(pyspark.__file__).parent
FILES = ("--extra-py-files", "--extra-files", "--extra-jars", "--scriptLocation")
"""Glue brings them, and the script is not told."""
SWITCH = re.compile(r"--(enable-[\w-]+|user-jars-first|custom-logGroup-prefix)")
SWITCHES_OF_SPARK = {"--help", "--supervise", "--usage-error", "--verbose", "--version"}


class Refused(Exception):
    """The launcher ends the run before the script begins."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a run is started with. files: of S3, by Glue's argument."""

    conf: dict[str, str]
    files: dict[str, list[str]]
    script_arguments: list[str]


@cache
def strings_of_spark(name: str, pattern: bytes) -> tuple[str, ...]:
    """The strings in a class of Spark's launcher."""
    (launcher,) = (SPARK / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(launcher) as jar:
        found = re.findall(pattern, jar.read(f"org/apache/spark/launcher/{name}.class"))
    return tuple(each.decode() for each in found)


def words_of_spark_submit() -> set[str]:
    """The options that Spark's launcher takes, from its own parser."""
    return set(strings_of_spark("SparkSubmitOptionParser", rb"--[a-z][a-z-]+"))


def launched(arguments: Mapping[str, str]) -> Launch:
    """Read the arguments of a run. Raises Refused: a word belongs to no option."""
    words = " ".join(f"{name} {value}" for name, value in arguments.items()).split()
    launch, taken = Launch({}, {}, []), words_of_spark_submit()
    while words:
        word = words.pop(0)
        has_value = bool(words) and not words[0].startswith("--")
        if not word.startswith("--"):
            said = "Unrecognized option '{}'" if word.startswith("-") else "Cannot load main class from {}"
            raise Refused(said.format(word))
        if word in FILES:
            launch.files[word] = [each for each in words.pop(0).split(",") if each] if has_value else []
        elif word in taken:
            _of_spark(word, words.pop(0) if has_value and word not in SWITCHES_OF_SPARK else "", launch.conf)
        else:
            launch.script_arguments.extend([] if SWITCH.fullmatch(word) else [word])
            launch.script_arguments.extend([words.pop(0)] if has_value else [])
    return launch


def _of_spark(option: str, value: str, conf: dict[str, str]) -> None:
    """Spark's launcher takes an option of its own wherever it stands; only `--conf` is of use to Glue."""
    name, equals, setting = value.partition("=")
    if option == "--conf" and not equals:
        raise Refused(f"Spark config without '=': {value}")
    if option == "--conf":
        conf[name] = setting
