"""calve.yaml: read and checked once on the operator's side, and resolved into the jobs.

Needs pydantic and PyYAML, so the Glue job and the Lambdas never import it: they read `calve.job.Job` as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from calve.errors import ConfigError
from calve.job import Job, Kafka, Lake, Registry, Table, Transform
from calve.settings import document
from calve.settings.checks import configuration
from calve.settings.problems import KeyPath, Problem, config_error
from calve.settings.relations import job_names, relations

if TYPE_CHECKING:
    from pathlib import Path

    from calve.settings.model import AuthSection, Configuration, DefaultsSection, TableSection

__all__ = ["StackDefaults", "load"]

_T = TypeVar("_T")

_TABLE_OPTIONS = {  # key in calve.yaml -> field of calve.job.Table
    "freshness": "freshness_s",
    "flush_size": "flush_bytes",
    "partition_flush_size": "partition_flush_bytes",
    "start": "start",
    "on_error": "on_error",
    "on_data_loss": "on_data_loss",
    "gaps": "gaps",
    "format_version": "format_version",
}


@dataclass(frozen=True, slots=True)
class StackDefaults:
    """What the stack that a job runs on supplies where calve.yaml names nothing.

    `kafka` and `registry` stand in for whole absent sections. `warehouse` (an S3 URI without a trailing slash)
    stands in for `lake.bucket`; `endpoint` belongs to it and is not used with a bucket that calve.yaml names.
    """

    kafka: Kafka | None = None
    registry: Registry | None = None
    warehouse: str | None = None
    region: str | None = None
    endpoint: str | None = None


def load(path: Path, *, env: str | None = None, stack: StackDefaults | None = None) -> tuple[Job, ...]:
    """The jobs of `path`, with the overlay of `env` (`calve.prod.yaml` beside `calve.yaml`) laid over it.

    Raises:
        ConfigError: lists every problem found, each with file, line, key, reason and cure.
    """
    stack = stack or StackDefaults()
    source = _read(path, env)
    if not source.values and not source.problems:
        raise ConfigError(
            f"{path} is empty", fix="begin with `name:` and `tables:`; docs/configuration.md has an example"
        )
    checked, found = configuration(source.values)
    found += [*relations(source.values), *_unsupplied(source.values, stack)]
    found += _missing_files(checked, path.parent) if checked else []
    if checked is None or found or source.problems:
        raise config_error(
            str(path), [*source.problems, *((source.place(each.path), each) for each in found)]
        )
    return tuple(_job(checked, name, stack, path.parent) for name in job_names(source.values))


def _read(path: Path, env: str | None) -> document.Document:
    base = document.read(
        path, fix_if_missing="name the file with --config; docs/configuration.md has an example"
    )
    if env is None:
        return base
    overlay = path.with_name(f"{path.stem}.{env}{path.suffix}")
    return base.overlaid_by(
        document.read(overlay, fix_if_missing=f"make it for the environment {env}, or name another")
    )


def _unsupplied(values: dict[str, Any], stack: StackDefaults) -> list[Problem]:
    """Parts that neither calve.yaml nor the stack names."""
    embedded = "start the embedded stack: `calve up`"
    lake = values.get("lake")
    bucket = isinstance(lake, dict) and lake.get("bucket") is not None
    missing: list[tuple[KeyPath, bool, str]] = [
        (
            ("kafka",),
            values.get("kafka") is None and stack.kafka is None,
            "add `kafka: {bootstrap_servers: host:port}`",
        ),
        (
            ("registry",),
            values.get("registry") is None and stack.registry is None,
            "add `registry: {url: https://host}`",
        ),
        (("lake", "bucket"), not bucket and stack.warehouse is None, "add `lake: {bucket: NAME}`"),
    ]
    return [Problem(path, "is missing", f"{fix}, or {embedded}") for path, absent, fix in missing if absent]


def _missing_files(checked: Configuration, folder: Path) -> list[Problem]:
    named = [
        (("kafka", "auth", "ca_file"), checked.kafka and checked.kafka.auth.ca_file),
        (("registry", "ca_file"), checked.registry and checked.registry.ca_file),
    ]
    return [
        Problem(path, f'"{folder / file}" does not exist', "name a PEM file, relative to calve.yaml")
        for path, file in named
        if file and not (folder / file).is_file()
    ]


def _job(checked: Configuration, name: str, stack: StackDefaults, folder: Path) -> Job:
    only = len(checked.jobs or {}) <= 1
    return Job(
        name=checked.name,
        job=name,
        kafka=_kafka(checked, stack, folder),
        registry=_registry(checked, stack, folder),
        lake=_lake(checked, stack),
        tables=tuple(
            _table(key, table, checked.defaults)
            for key, table in checked.tables.items()
            if only or table.job == name
        ),
    )


def _kafka(checked: Configuration, stack: StackDefaults, folder: Path) -> Kafka:
    if checked.kafka is None:
        return _given(stack.kafka)
    auth: AuthSection = checked.kafka.auth
    return Kafka(
        bootstrap_servers=checked.kafka.bootstrap_servers,
        auth=auth.type,
        mechanism=(auth.mechanism or "SCRAM-SHA-512") if auth.type == "sasl_scram" else None,
        tls=auth.encrypted,
        ca_file=_file(auth.ca_file, folder),
        secret=_reference(auth.secret, folder),
    )


def _registry(checked: Configuration, stack: StackDefaults, folder: Path) -> Registry:
    registry = checked.registry
    if registry is None:
        return _given(stack.registry)
    return Registry(registry.url, _reference(registry.secret, folder), _file(registry.ca_file, folder))


def _lake(checked: Configuration, stack: StackDefaults) -> Lake:
    lake = checked.lake
    warehouse = f"s3://{lake.bucket}" if lake.bucket else _given(stack.warehouse)
    return Lake(
        database=lake.database or checked.name.replace("-", "_"),
        warehouse=f"{warehouse}/{lake.prefix}" if lake.prefix else warehouse,
        namespace=lake.namespace,
        region=lake.region or stack.region or "us-east-1",
        endpoint=None if lake.bucket else stack.endpoint,
        kms_key=lake.kms_key,
    )


def _table(name: str, table: TableSection, defaults: DefaultsSection) -> Table:
    options: dict[str, Any] = {}
    for key, option in _TABLE_OPTIONS.items():
        own, shared = getattr(table, key), getattr(defaults, key)
        if own is not None or shared is not None:
            options[option] = own if own is not None else shared
    partition_by = table.partition_by
    if partition_by is None:
        partition_by = [Transform(table.event_time, "day")] if table.event_time else []
    return Table(
        name=name,
        topic=table.topic,
        event_time=table.event_time,
        partition_by=tuple(partition_by),
        sort_by=tuple(table.sort_by or ()),
        **options,
    )


def _file(file: str | None, folder: Path) -> str | None:
    return str((folder / file).resolve()) if file else None


def _reference(secret: str | None, folder: Path) -> str | None:
    """A reference that means the same in any working directory."""
    if secret and secret.startswith("file:"):
        return "file:" + str((folder / secret.removeprefix("file:")).resolve())
    return secret


def _given(value: _T | None) -> _T:
    """A value whose absence `_unsupplied` has reported."""
    if value is None:
        raise AssertionError
    return value
