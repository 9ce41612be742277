"""What a deploy would change, and what a month costs before and after: calve.yaml compared with what is deployed. Pure rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from calve.config.deployment import Deployment, JobDeployment, Msk, Network, Workers
from calve.config.engine_choice import MODES
from calve.config.job import Table
from calve.config.publishing import Delta, Export, IcebergRest, OpenLineage, Publish, Snowflake
from calve.decoding.field_quarantine import leaves
from calve.errors import CalveError, Retryable, Suspended
from calve.modes.switch import described
from calve.schema.columns import Json
from calve.schema.evolution import SchemaProblem, data_columns, show
from calve.schema.evolution import changes as changes_of
from cli.look.cost.model import Load, Rates, bill
from cli.project.plan import change as rules
from cli.project.plan.change import NOTHING, Change, Consequence, Difference, Kind, differences, flat, terms
from cli.project.plan.deployed import Deployed, DeployedJob, DeployedTable, DeployedTarget, Target

LAYOUT = ("partition_by", "sort_by", "format_version")

FIELD = re.compile(r"[^,\s(]+(?:\([^)]*\))?")

Made = Mapping[str, "Json | CalveError"]
"""By table with steps: the columns that they make, or why they cannot run."""


def changes(deployment: Deployment, deployed: Deployed, made: Made | None = None) -> list[Change]:
    """The changes of jobs, tables, exports, targets and the database, in the order of calve.yaml."""
    return [
        Change("lake", f"database {deployed.database}", "=" if deployed.database_exists else "+"),
        *_of_jobs(deployment.jobs, deployed.jobs),
        *_of_tables(deployment.jobs, deployed, made or {}),
        *_of_exports(deployment.exports, deployed.exports),
        *_of_targets(deployment.publish, deployed.targets),
    ]


def _of_tables(jobs: Iterable[JobDeployment], deployed: Deployed, made: Made) -> Iterator[Change]:
    entries = {table.name for job in jobs for table in (*job.settings.tables, *job.settings.patterns)}
    for job in jobs:
        for table in job.settings.tables:
            change = of_entry(job.settings.job, table, deployed)
            if table.name in deployed.foreign:
                kind: Kind = "~" if change.kind == "=" else change.kind
                change = replace(
                    change, kind=kind, consequences=(*change.consequences, rules.waits(table.name))
                )
            change = _with_steps(change, deployed.tables.get(table.name), made.get(table.name))
            yield replace(change, entry=table.pattern)
    for name in {**deployed.tables, **deployed.settings}:
        if name not in entries:
            stays = Consequence("it stays, and no job writes it", breaking=True)
            yield Change("tables", name, "-", consequences=(stays,) if name in deployed.tables else ())


def of_entry(job: str, table: Table, deployed: Deployed) -> Change:
    """The change of one entry of `tables`, or of one table of an entry with `topics`, which has the entry's settings."""
    held, entry = deployed.tables.get(table.name), deployed.settings.get(table.pattern or table.name)
    if held is None and entry is None:
        return Change("tables", table.name, "+", note=f"from {table.topic}")
    before = None if table.pattern else entry
    was = deployed.job_of(table) if table.pattern else None
    moved = [Difference("job", was, job)] if was and was != job else []
    found = [*moved, *_settings(job, table, before, held), *(_held(table, held) if held else ())]
    if found:
        keys = {each.key for each in found}
        following = rules.table_consequences(before[1] if before else None, table, held, keys)
        return Change("tables", table.name, "~", tuple(found), consequences=tuple(following))
    if entry is None and any(each.settings for each in deployed.jobs.values()):
        return Change("tables", table.name, "~", note="it is there, and a job writes it again")
    return Change("tables", table.name, "=", note="" if held else "the job has not made it yet")


def _settings(
    job: str, table: Table, before: tuple[str, Table] | None, held: DeployedTable | None
) -> Iterator[Difference]:
    """The settings that its job gets, without those that the table itself stores."""
    if before is None:
        return
    known = (*(LAYOUT if held else ()), *(MODES if held and not held.empty else ()))
    if before[0] != job:
        yield Difference("job", before[0], job)
    for each in differences(rules.of_table(before[1]), rules.of_table(table)):
        if each.key.partition(".")[0] not in known:
            yield each


def _held(table: Table, held: DeployedTable) -> Iterator[Difference]:
    configured = {
        "partition_by": terms(table.partition_by),
        "sort_by": terms(table.sort_by),
        "format_version": str(table.format_version),
    }
    there = {name: str(getattr(held, name)) for name in LAYOUT}
    # The order of partition fields does not matter.
    old, new = (sorted(FIELD.findall(each["partition_by"])) for each in (there, configured))
    if table.mode.bucketed or old == new:
        configured["partition_by"] = held.partition_by
    if not held.empty:
        there["mode"] = described(held.columns, held.mode)
        try:
            configured["mode"] = described(held.columns, table.mode_note(held.columns))
        except Suspended as unusable:
            configured["mode"] = unusable.message
    yield from differences(there, configured)


def _with_steps(change: Change, held: DeployedTable | None, made: Json | CalveError | None) -> Change:
    """The change, with the columns that the table's steps make."""
    if made is None:
        return change
    kind: Kind = "+" if held is None else "~"
    if isinstance(made, CalveError):
        yet = " yet" if isinstance(made, Retryable) else ""
        return replace(change, kind=kind, note=f"it cannot be made{yet}: {made.message}")
    if held is None:
        columns = ", ".join(f"{each['name']} {show(each['type'])}" for each in made["fields"])
        return replace(change, differences=(*change.differences, Difference("columns", NOTHING, columns)))
    try:
        wanted = changes_of(data_columns(held.columns), made)
    except SchemaProblem as problem:
        suspended = Consequence(f"the job will suspend it: {problem.message}", breaking=True)
        return replace(change, kind=kind, consequences=(*change.consequences, suspended))
    renamed = [(".".join((*each.parent, each.name)), each.where) for each in wanted if each.kind == "rename"]
    lost = leaves(data_columns(held.columns)).keys() - leaves(made).keys() - {old for old, _ in renamed}
    following = tuple(rules.column_consequences(renamed, sorted(lost)))
    if wanted:
        added = Difference("columns", NOTHING, ", ".join(map(str, wanted)))
        change = replace(change, kind=kind, differences=(*change.differences, added))
    elif change.kind == "=":  # what its steps leave unfilled, they did before
        return change
    return replace(change, consequences=(*change.consequences, *following))


def _of_jobs(jobs: Sequence[JobDeployment], deployed: Mapping[str, DeployedJob]) -> Iterator[Change]:
    gone = dict(deployed)
    for job in jobs:
        name, before = job.settings.job, gone.pop(job.settings.job, None)
        if before is None:
            yield Change("jobs", name, "+")
        elif found := tuple(_job_differences(job, before)):
            following = tuple(rules.job_consequences({each.key for each in found}))
            yield Change("jobs", name, "~", found, consequences=following)
        else:
            yield Change("jobs", name, "=")
    for name in gone:
        yield Change("jobs", name, "-", consequences=(Consequence("it ends its round, and is deleted"),))


def _job_differences(job: JobDeployment, deployed: DeployedJob) -> Iterator[Difference]:
    aspects: list[tuple[str, object, object]] = [
        ("worker", deployed.worker, job.worker),
        ("workers.min", deployed.fewest, job.workers.min),
        ("workers.max", deployed.workers, job.workers.max),
        ("run", deployed.schedule or "continuous", job.schedule or "continuous"),
    ]
    if job.schedule and deployed.schedule:
        aspects.append(("time_zone", deployed.time_zone, job.time_zone))
    if job.schedule is None and deployed.maintenance_window:
        aspects.append(("maintenance_window", deployed.maintenance_window, job.maintenance_window or NOTHING))
    for key, before, after in aspects:
        if before != after:
            yield Difference(key, str(before), str(after))
    yield from differences(deployed.conf, job.conf, "conf.")
    if deployed.settings is None:
        yield Difference("settings", "not readable", "as in calve.yaml")
    else:
        yield from differences(rules.of_job(deployed.settings), rules.of_job(job.settings))


def _of_exports(exports: Iterable[Export], deployed: Mapping[str, Export]) -> Iterator[Change]:
    gone = dict(deployed)
    for export in exports:
        name, before = export.name, gone.pop(export.name, None)
        if before is None:
            yield Change("exports", name, "+", note=f"of {export.table}, {export.schedule}")
        elif found := tuple(differences(flat(asdict(before)), flat(asdict(export)))):
            following = tuple(rules.export_consequences(before, export, {each.key for each in found}))
            yield Change("exports", name, "~", found, consequences=following)
        else:
            yield Change("exports", name, "=")
    text = "its recipients get no more mails; delivered files stay as long as before"
    for name in gone:
        yield Change("exports", name, "-", consequences=(Consequence(text, breaking=True),))


PLACE = {
    "iceberg_rest": ("uri", "warehouse", "namespace"),
    "snowflake": ("account", "database", "schema", "tables"),
    "delta": (),
    "openlineage": (),
}
"""The keys of a table's place in a target."""
SHOWN = 10


def _of_targets(publish: Publish | None, deployed: Mapping[str, DeployedTarget]) -> Iterator[Change]:
    gone = dict(deployed)
    for name in PLACE:
        if publish and (wanted := getattr(publish, name)):
            yield _target(name, wanted, publish, gone.pop(name, None))
    for name, target in gone.items():
        yield Change("publish", name, "-", consequences=tuple(_dropped(name, target.tables)))


def _target(name: str, wanted: Target, publish: Publish, deployed: DeployedTarget | None) -> Change:
    tables = {each.table for each in publish.tables}
    if deployed is None:
        note = f"of {_listed(tables) or 'the tables of topics by expression'}"
        return Change("publish", name, "+", note=note)
    patterns = [re.compile(each) for each in publish.patterns]
    if deployed.settings:
        found = list(differences(_unmade(deployed.settings), _unmade(wanted)))
    else:
        found = [Difference("settings", "not readable", "as in calve.yaml")]
    added = tables - deployed.tables
    gone = {each for each in deployed.tables - tables if not any(one.fullmatch(each) for one in patterns)}
    if added or gone:
        found.append(Difference("tables", _listed(gone) or NOTHING, _listed(added) or NOTHING))
    if not found:
        return Change("publish", name, "=")
    moved = [each.key for each in found if each.key in PLACE[name]]
    consequences = [*_dropped(name, gone)]
    if moved:
        text = f"{', '.join(moved)}: every table leaves its place there and is made in the new one"
        consequences.append(Consequence(text, breaking=True))
    return Change("publish", name, "~", tuple(found), consequences=tuple(consequences))


def _unmade(settings: Target) -> dict[str, str]:
    """Settings without those that differ before and after a deploy: one that makes a catalog also makes its credentials."""
    if isinstance(settings, IcebergRest) and settings.bootstrap:
        settings = replace(settings, secret=None, scope=None)
    return flat(asdict(settings))


def _dropped(name: str, tables: Iterable[str]) -> Iterator[Consequence]:
    if name != "openlineage" and (names := _listed(tables)):
        yield Consequence(f"{names} can no longer be read there; the data stays in the lake", breaking=True)


def _listed(tables: Iterable[str]) -> str:
    names = sorted(tables)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


@dataclass(frozen=True, slots=True)
class Part:
    """US dollars a month."""

    part: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Bills:
    """US dollars a month; `parts`: those that differ. unknown: deployed jobs without readable settings, which are not counted."""

    before: float
    after: float
    parts: tuple[Part, ...]
    unknown: tuple[str, ...] = ()


def bills(deployment: Deployment, deployed: Deployed, load: Load, rates: Rates) -> Bills:
    # The deployed state in the form of a configuration; the lake, whose parts never change, is the configuration's.
    jobs = tuple(
        JobDeployment(each.settings, each.worker, Workers(each.fewest, each.workers), each.schedule)
        for each in deployed.jobs.values()
        if each.settings
    )
    targets = [each.settings for each in deployed.targets.values()]
    rest = next((each for each in targets if isinstance(each, IcebergRest)), None)
    snowflake = next((each for each in targets if isinstance(each, Snowflake)), None)
    delta = next((each for each in targets if isinstance(each, Delta)), None)
    lineage = next((each for each in targets if isinstance(each, OpenLineage)), None)
    there = replace(
        deployment,
        jobs=jobs,
        msk=Msk() if deployed.cluster else None,
        network=Network() if deployed.endpoints else None,
        exports=tuple(deployed.exports.values()),
        publish=Publish((), iceberg_rest=rest, snowflake=snowflake, delta=delta, openlineage=lineage)
        if targets
        else None,
    )
    after = {line.part: line.configured for line in bill(deployment, load, rates).lines}
    lines = bill(there, load, rates).lines if jobs else []
    before = {line.part: line.configured for line in lines}
    parts = (Part(name, before.get(name, 0.0), after.get(name, 0.0)) for name in {**after, **before})
    return Bills(
        sum(before.values()),
        sum(after.values()),
        tuple(each for each in parts if each.before != each.after),
        tuple(name for name, job in deployed.jobs.items() if job.settings is None),
    )
