"""What a deploy would change: values, and the comparisons that make them. Asks nobody."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from calve.errors import CalveError, Retryable, Suspended
from calve.evolution import SchemaProblem, data_columns, show
from calve.evolution import changes as changes_of
from calve.job import Table, Transform, Upsert
from calve.modes import described, noted, switch
from cli.status import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calve.columns import Json
    from calve.deployment import Deployment, JobDeployment
    from calve.export import Export
    from calve.job import Job

Kind = Literal["+", "~", "=", "-"]
KINDS: dict[Kind, str] = {"+": "new", "~": "changed", "=": "same", "-": "no longer configured"}
NOTHING = "-"
KEYS = {
    "freshness_s": "freshness",
    "flush_bytes": "flush_size",
    "partition_flush_bytes": "partition_flush_size",
    "wait_s": "wait",
    "keep_days": "keep",
    "link_days": "link.days",
    "max_downloads": "link.max_downloads",
}
"""Fields of the resolved values whose keys in calve.yaml are other ones."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One key with what is deployed and what is configured; `-` stands for nothing."""

    key: str
    deployed: str
    configured: str


@dataclass(frozen=True, slots=True)
class Change:
    """What would happen to one thing. `note` says what the kind alone does not, `undecided` which fields are to be decided on."""

    section: str
    name: str
    kind: Kind
    differences: tuple[Difference, ...] = ()
    note: str = ""
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeployedJob:
    """A Glue job. `settings` None: the file that it reads is not there, or not readable by this release."""

    worker: str
    workers: int
    schedule: str | None = None
    time_zone: str = "UTC"
    maintenance_window: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    settings: Job | None = None


@dataclass(frozen=True, slots=True)
class DeployedTable:
    """An Iceberg table that calve keeps. `mode`: as its position says it; `empty`: it has read nothing, so any mode will do.

    fields: `calve.quarantine.fields_in` its properties. topic: what it was made for.
    """

    partition_by: str
    sort_by: str
    format_version: int
    columns: Json
    mode: str | None = None
    empty: bool = False
    fields: frozenset[str] | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Deployed:
    """What an account holds of a deployment. `database` is the name of the one that the tables are in."""

    database: str
    database_exists: bool = False
    jobs: dict[str, DeployedJob] = field(default_factory=dict)
    tables: dict[str, DeployedTable] = field(default_factory=dict)
    exports: dict[str, Export] = field(default_factory=dict)


Made = Mapping[str, "Json | CalveError"]
"""Of tables with steps: the columns that those make, or why they cannot be run."""


def changes(deployment: Deployment, deployed: Deployed, made: Made | None = None) -> list[Change]:
    """Every job, table and export of either side, and the database, in the order of calve.yaml."""
    configured = {job.settings.job: job for job in deployment.jobs}
    tables = {table.name: table for job in deployment.jobs for table in job.settings.tables}
    exports = {export.name: export for export in deployment.exports}
    kept = "it stays, and no job writes it"
    return [
        Change("lake", f"database {deployed.database}", "=" if deployed.database_exists else "+"),
        *(_compared("jobs", name, _job(job, deployed.jobs.get(name))) for name, job in configured.items()),
        *(Change("jobs", name, "-") for name in deployed.jobs if name not in configured),
        *(
            _with_steps(
                _compared(
                    "tables",
                    name,
                    _table(table, deployed.tables.get(name)),
                    new=f"from {table.topic}",
                    changed=_what_becomes_of(table, deployed.tables.get(name)),
                ),
                deployed.tables.get(name),
                (made or {}).get(name),
            )
            for name, table in tables.items()
        ),
        *(Change("tables", name, "-", note=kept) for name in deployed.tables if name not in tables),
        *(
            _compared("exports", name, _export(each, deployed.exports.get(name)))
            for name, each in exports.items()
        ),
        *(Change("exports", name, "-") for name in deployed.exports if name not in exports),
    ]


def _compared(
    section: str, name: str, differences: Iterator[Difference] | None, *, new: str = "", changed: str = ""
) -> Change:
    if differences is None:
        return Change(section, name, "+", note=new)
    found = tuple(each for each in differences if each.deployed != each.configured)
    return Change(section, name, "~", found, changed) if found else Change(section, name, "=")


def _with_steps(change: Change, deployed: DeployedTable | None, made: Json | CalveError | None) -> Change:
    """The same, with what the steps of the table make."""
    if made is None:
        return change
    kind: Kind = "+" if deployed is None else "~"
    if isinstance(made, CalveError):
        yet = " yet" if isinstance(made, Retryable) else ""
        return replace(change, kind=kind, note=f"its steps cannot be run{yet}: {made.message}")
    if deployed is None:
        columns = ", ".join(f"{each['name']} {show(each['type'])}" for each in made["fields"])
        return replace(change, differences=(Difference("columns", NOTHING, columns),))
    try:
        wanted = changes_of(data_columns(deployed.columns), made)
    except SchemaProblem as problem:
        return replace(change, kind=kind, note=f"the job will suspend it: {problem.message}")
    if not wanted:
        return change
    added = Difference("columns", NOTHING, ", ".join(map(str, wanted)))
    return replace(change, kind=kind, differences=(*change.differences, added))


def _job(job: JobDeployment, deployed: DeployedJob | None) -> Iterator[Difference] | None:
    return None if deployed is None else _job_differences(job, deployed)


def _job_differences(job: JobDeployment, deployed: DeployedJob) -> Iterator[Difference]:
    yield Difference("worker", deployed.worker, job.worker)
    yield Difference("workers.max", str(deployed.workers), str(job.workers.max))
    yield Difference("run", deployed.schedule or "continuous", job.schedule or "continuous")
    if job.schedule and deployed.schedule:
        yield Difference("time_zone", deployed.time_zone, job.time_zone)
    if job.schedule is None and deployed.maintenance_window:
        yield Difference("maintenance_window", deployed.maintenance_window, job.maintenance_window)
    yield from _pairs("conf", deployed.conf, job.conf)
    if deployed.settings is None:
        yield Difference("settings", "not readable", "as in calve.yaml")
    else:
        yield from _pairs("", written(deployed.settings), written(job.settings))


def _table(table: Table, deployed: DeployedTable | None) -> Iterator[Difference] | None:
    if deployed is None:
        return None
    by_key = deployed.partition_by if isinstance(table.mode, Upsert) and table.mode.bucketed else None
    found = [
        Difference("partition_by", deployed.partition_by, by_key or terms(table.partition_by)),
        Difference("sort_by", deployed.sort_by, terms(table.sort_by)),
        Difference("format_version", str(deployed.format_version), str(table.format_version)),
    ]
    if not deployed.empty:
        found.append(Difference("mode", described(deployed.columns, deployed.mode), _mode(table, deployed)))
    return iter(found)


def _mode(table: Table, deployed: DeployedTable) -> str:
    try:
        return described(deployed.columns, noted(deployed.columns, table.mode))
    except Suspended as unusable:
        return unusable.message


def _what_becomes_of(table: Table, deployed: DeployedTable | None) -> str:
    """What the job does with a table whose mode is changed, and what it leaves as it is."""
    laid_out = "a table that exists keeps its layout"
    if deployed is None or deployed.empty:
        return laid_out
    try:
        match switch(table.name, table.name, deployed.mode, noted(deployed.columns, table.mode)):
            case "fold":
                return "the job deletes the rows that newer records of their key replace, in one commit; its layout stays"
            case "open":
                return "the rows stay, and every further record is one; its layout stays"
            case None:
                return laid_out
    except Suspended as refused:
        return f"the job will suspend it: {refused.message}"


def _export(export: Export, deployed: Export | None) -> Iterator[Difference] | None:
    if deployed is None:
        return None
    return _pairs("", _flat(asdict(deployed)), _flat(asdict(export)))


def written(job: Job) -> dict[str, str]:
    """A job's settings by key; each entry of `tables` that a job has is a key too."""
    found: dict[str, str] = {}
    for section in ("kafka", "registry", "lake"):
        part = getattr(job, section)
        found |= _flat(asdict(part), f"{section}.") if part else {}
    for table in (*(each for each in job.tables if each.pattern is None), *job.patterns):
        here = f"tables.{table.name}"
        found[here] = f"from {table.topic}"
        plain = asdict(table) | {"partition_by": terms(table.partition_by), "sort_by": terms(table.sort_by)}
        del plain["name"], plain["topic"], plain["pattern"]
        found |= _flat(plain, f"{here}.")
    return found


def terms(transforms: tuple[Transform, ...]) -> str:
    """Partition or sort fields as calve.yaml writes them: `day(created_at), price desc`."""
    return ", ".join(map(_term, transforms)) or NOTHING


def _term(transform: Transform) -> str:
    arguments = ", ".join(str(each) for each in (transform.argument, transform.column) if each is not None)
    plain = transform.column if transform.name == "identity" else f"{transform.name}({arguments})"
    return f"{plain} desc" if transform.descending else plain


def _pairs(prefix: str, deployed: Mapping[str, str], configured: Mapping[str, str]) -> Iterator[Difference]:
    """Keys of both sides; of a table that only one side has, the table alone."""
    dot = f"{prefix}." if prefix else ""
    for key in [*configured, *(key for key in deployed if key not in configured)]:
        parts = key.split(".")
        above = [".".join(parts[:length]) for length in range(1, len(parts))]
        if not any((parent in configured) != (parent in deployed) for parent in above):
            yield Difference(dot + key, deployed.get(key, NOTHING), configured.get(key, NOTHING))


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        name = prefix + KEYS.get(key, key)
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{name}.")
        else:
            found[name] = _shown(key, value)
    return found


def _shown(key: str, value: Any) -> str:
    match value:
        case None | {} | [] | ():
            return NOTHING
        case [*items]:
            return ", ".join(_item(each) if isinstance(each, dict) else str(each) for each in items)
        case bool():
            return str(value).lower()
        case int() | float() if key.endswith("_s"):
            return duration(value)
        case int() if key == "keep_days":
            return f"{value}d"
        case int() if key.endswith("_bytes"):
            return f"{value:,} B"
        case str() if key == "schema":
            return f"a text with the digest {hashlib.sha256(value.encode()).hexdigest()[:12]}"
    return str(value)


def _item(raw: Mapping[str, Any]) -> str:
    """A measure or a step as calve.yaml has it, more or less."""
    if "kind" in raw:
        given = {name: each for name, each in raw.items() if name != "kind" and each}
        return f"{raw['kind']} {json.dumps(given, sort_keys=True)}"
    if "text" in raw:
        return f"{raw['name']}: {raw['text']}"
    column = f"({raw['column']})" if raw["column"] else ""
    return f"{raw['name']}: {raw['function']}{column}"
