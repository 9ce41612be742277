"""calve.yaml: read and validated once on the operator's side, then resolved into jobs or a whole deployment.

Needs pydantic and PyYAML, so Glue jobs and Lambdas never import it: they read `calve.config.job.Job` as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from calve.config.deployment import UNKNOWN_WAREHOUSE, Deployment
from calve.config.job import Job, Kafka
from calve.errors import ConfigError
from calve.settings import document
from calve.settings.model import Configuration, configuration
from calve.settings.problems import Problem, config_error
from calve.settings.relations import job_names, needed_by_a_command, needed_by_a_deploy, relations
from calve.settings.resolving import StackDefaults, deployment, resolved_jobs

__all__ = ["StackDefaults", "load", "load_deployment", "load_kafka", "load_spark_settings", "read_source"]


def load(path: Path, *, env: str | None = None, stack: StackDefaults | None = None) -> tuple[Job, ...]:
    """The jobs of `path`, with the overlay of `env` (`calve.prod.yaml` beside `calve.yaml`).

    A command that only reads may pass `UNKNOWN_WAREHOUSE` for the stack's: the catalog knows the tables' locations.

    Raises ConfigError: lists every problem, each with file, line, key, reason and fix.
    """
    stack = stack or StackDefaults()
    source = read_source(path, env)
    checked = _checked(path, source, needed_by_a_command(source.values, stack))
    return tuple(
        job for name in job_names(source.values) for job in resolved_jobs(checked, name, stack, path.parent)
    )


def load_deployment(path: Path, env: str | None = None, stack: StackDefaults | None = None) -> Deployment:
    """The deployment in `path`, with the overlay of `env`; `load` returns only its jobs, and raises the same.

    `UNKNOWN_WAREHOUSE` and `UNKNOWN_SERVERS` stand for a bucket and a cluster that the stack makes.
    """
    stack = stack or StackDefaults()
    source = read_source(path, env)
    checked = _checked(path, source, needed_by_a_deploy(source.values, stack))
    known = replace(stack, warehouse=stack.warehouse or UNKNOWN_WAREHOUSE)
    jobs = [
        job for name in job_names(source.values) for job in resolved_jobs(checked, name, known, path.parent)
    ]
    return deployment(checked, jobs)


def load_kafka(path: Path, config: Path, env: str | None, stack: StackDefaults) -> Kafka:
    """The cluster of `kafka` in the file `path`, read in place of that of the configuration.

    Raises ConfigError: as `load`, or the file has no `kafka`.
    """
    other, source = document.read(path, fix_if_missing="name another file"), read_source(config, env)
    if "kafka" not in other.values:
        raise ConfigError(
            f"{path} has no `kafka`", fix="add `kafka: {bootstrap_servers: ...}` of that cluster"
        )
    source.values["kafka"] = other.values["kafka"]
    source.places |= {key: place for key, place in other.places.items() if key[0] == "kafka"}
    checked = _checked(config, source, needed_by_a_command(source.values, stack))
    first, *_ = resolved_jobs(checked, job_names(source.values)[0], stack, path.parent)
    return first.kafka


def load_spark_settings(path: Path, env: str | None = None) -> dict[str, dict[str, str]]:
    """`jobs.<name>.conf` of a valid file, by entry of `jobs`."""
    checked, _ = configuration(read_source(path, env).values, path.parent)
    return {name: section.conf for name, section in ((checked and checked.jobs) or {}).items()}


def _checked(path: Path, source: document.Document, missing: Iterable[Problem]) -> Configuration:
    if not source.values and not source.problems:
        raise ConfigError(
            f"{path} is empty", fix="begin with `name:` and `tables:`; docs/configuration.md has an example"
        )
    checked, found = configuration(source.values, path.parent)
    found += [*relations(source.values, path.parent), *missing]
    if checked is None or found or source.problems:
        raise config_error(str(path), [*source.problems, *source.placed(found)])
    return checked


def read_source(path: Path, env: str | None) -> document.Document:
    """The values of `path` and the overlay of `env`, not validated, with their lines. Raises as `document.read`."""
    base = document.read(
        path, fix_if_missing="write it from your topics: calve init; or name another file: --config FILE"
    )
    if env is None:
        return base
    overlay = path.with_name(f"{path.stem}.{env}{path.suffix}")
    top = document.read(overlay, fix_if_missing=f"make it for the environment {env}, or name another")
    return document.Document(
        base.file, _merged(base.values, top.values), base.places | top.places, base.problems + top.problems
    )


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Mappings are merged, other values are replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
