"""The one way in which people and schedules start a job: as it is deployed, without an argument of theirs (ADR 39)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calve.errors import ConfigError, Retryable
from lambdas.job_control.jobs import Jobs


def start(jobs: Jobs, known: frozenset[str], event: Mapping[str, Any]) -> str:
    """Start a run of the job that the event names; returns its id.

    Raises:
        Retryable: Glue has no room for it, as beside a run in progress.
        ConfigError: the event holds more than the name of a job of this deployment.
    """
    name = event.get("job")
    definition = jobs.definition(name) if name in known else None
    if definition is None or len(event) > 1:
        names = ", ".join(sorted(known))
        raise ConfigError(
            "the event does not name a job of this deployment, or holds more than its name",
            fix=f'send {{"job": NAME}}, where NAME is one of {names}',
        )
    run = jobs.start(str(name), definition.generation)
    if run is None:
        raise Retryable(
            f"Glue starts no run of {name} now: one is in progress, or the account's quota of runs is used up",
            fix="wait until a run has ended, or stop it",
        )
    return run
