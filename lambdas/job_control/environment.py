"""What the deployment tells the watchdog, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calve.errors import ConfigError

NAMES = ("CONTINUOUS_JOBS", "RESTARTS", "SCHEDULE_GROUP", "SCHEDULER_ROLE_ARN")


@dataclass(frozen=True, slots=True)
class WatchdogEnvironment:
    """`continuous_jobs` are Glue's names of the jobs to keep running; `restarts` of one may fail in a row."""

    continuous_jobs: frozenset[str]
    restarts: int
    schedule_group: str
    scheduler_role_arn: str

    @classmethod
    def parse(cls, variables: Mapping[str, str]) -> WatchdogEnvironment:
        """The function's variables; `CONTINUOUS_JOBS` is a list with commas.

        Raises:
            ConfigError: one is missing, or `RESTARTS` is no number.
        """
        missing = [name for name in NAMES if name not in variables]
        if missing:
            raise ConfigError(f"the watchdog's environment has no {', '.join(missing)}")
        if not variables["RESTARTS"].isdecimal():
            raise ConfigError(f"RESTARTS is {variables['RESTARTS']!r}", fix="use a number, 0 or above")
        return cls(
            continuous_jobs=frozenset(filter(None, variables["CONTINUOUS_JOBS"].split(","))),
            restarts=int(variables["RESTARTS"]),
            schedule_group=variables["SCHEDULE_GROUP"],
            scheduler_role_arn=variables["SCHEDULER_ROLE_ARN"],
        )
