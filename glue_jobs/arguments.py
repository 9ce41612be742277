"""What the scripts of jobs are told alike: their settings, and beside these what only a deploy knows, which wins over them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from calve.errors import ConfigError
from calve.job import Job


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
