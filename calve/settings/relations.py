"""Checks between keys of calve.yaml.

They work on the values as written, so that their problems are found in the same run as those of single keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calve.settings.problems import Problem, near_miss, one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_JOB = "main"


def job_names(values: Mapping[str, Any]) -> list[str]:
    """The configured jobs, or the one that stands in for none."""
    jobs = values.get("jobs")
    return list(jobs) if isinstance(jobs, dict) and jobs else [DEFAULT_JOB]


def relations(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem that lies between keys."""
    tables = values.get("tables")
    if not isinstance(tables, dict):
        return
    yield from _clashes(tables)
    yield from _jobs(tables, job_names(values))


def _clashes(tables: Mapping[str, Any]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name in tables:
        other = first.setdefault(name.lower(), name)
        if other != name:
            reason = (
                f'differs from "{other}" only by case, and Glue keeps names in lower case: both are one table'
            )
            yield Problem(("tables", name), reason, "rename one of the two")


def _jobs(tables: Mapping[str, Any], jobs: list[str]) -> Iterator[Problem]:
    named = {name: table.get("job") if isinstance(table, dict) else None for name, table in tables.items()}
    for table, job in named.items():
        if job is None and len(jobs) > 1:
            yield Problem(
                ("tables", table, "job"),
                "is missing: there are several jobs",
                "add " + one_of(f"`job: {each}`" for each in jobs),
            )
        elif isinstance(job, str) and job not in jobs:
            fix = near_miss(job, jobs) or f"use {one_of(jobs)}, or add it to `jobs`"
            yield Problem(("tables", table, "job"), f'"{job}" is no job', fix)
    if len(jobs) > 1:
        for job in jobs:
            if job not in named.values():
                yield Problem(
                    ("jobs", job), "has no table", f"add `job: {job}` to a table, or remove the job"
                )
