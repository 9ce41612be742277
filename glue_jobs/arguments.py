"""What the scripts of jobs are told alike: their settings, and beside these what only a deploy knows, which wins over them."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from calve.errors import ConfigError
from calve.job import Job

GLUES_OWN = re.compile(
    r"--(JOB_\w+|SECURITY_CONFIGURATION|(Redshift)?TempDir|true|debug|mode|endpoint|conf|scriptLocation|job-language"
    r"|job-bookmark-\w+|continuation-option|encryption-type|executor-cores|auto-scale-within-microbatch|datalake-formats"
    r"|extra-(files|jars|py-files)|user-jars-first"
    r"|(enable|continuous-log|custom-log|disable-proxy|spark-event-logs|write-shuffle)[\w-]*)"
)
"""What stands among a script's arguments, or may: what our definitions say to Glue, and what Glue adds or documents as a switch.

Its parameters by which other code could come in, and which no definition of ours has, are not among them. A definition's script
and files cannot be told from others here: nobody may start a run with arguments of his own (ADR 39).
"""


def job_parser(name: str, told: str | None) -> argparse.ArgumentParser:
    """A parser that knows the settings and where the lake is."""
    parser = argparse.ArgumentParser(prog=name, description=told, allow_abbrev=False)
    settings = parser.add_mutually_exclusive_group(required=True)
    settings.add_argument("--settings", help="resolved settings, as JSON")
    settings.add_argument("--settings-file", type=Path, help="resolved settings, as a JSON file")
    parser.add_argument("--warehouse", help="where new tables go: an S3 URI")
    parser.add_argument("--region", help="the region of lake and catalog")
    parser.add_argument("--kms-key", help="ARN of the key of new files")
    return parser


def parsed(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """The script's arguments; Glue's own are ignored.

    Raises:
        ConfigError: there are others.
    """
    options, left = parser.parse_known_args(words)
    named = (each.partition("=")[0] for each in left if each.startswith("--"))
    if others := sorted({each for each in named if not GLUES_OWN.fullmatch(each)}):
        raise ConfigError(
            f"the job does not take {', '.join(others)}",
            fix="start the job as it is deployed, without arguments: by the function NAME-start",
        )
    return options


def flag(parser: argparse.ArgumentParser, name: str, told: str) -> None:
    """Add what is true or false: Glue has no argument without a value."""
    parser.add_argument(
        name, nargs="?", const=True, default=False, type=lambda text: text.lower() == "true", help=told
    )


def job_of(options: argparse.Namespace) -> Job:
    """The settings, with what was told beside them.

    Raises:
        ConfigError: they cannot be used.
    """
    try:
        job = Job.from_json(options.settings or options.settings_file.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the settings cannot be used: {type(error).__name__}: {error}",
            fix="give the job the resolved settings that this release of calve makes",
        ) from None
    lake = replace(
        job.lake,
        warehouse=options.warehouse or job.lake.warehouse,
        region=options.region or job.lake.region,
        kms_key=options.kms_key or job.lake.kms_key,
    )
    return replace(job, lake=lake)
