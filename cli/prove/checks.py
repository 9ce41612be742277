"""The checks of the job and its tables: what it acknowledged, read again by others, and that it comes back."""

from __future__ import annotations

import json
import time
from typing import Any

from calve.errors import CalveError
from calve.names import TableName
from calve.outputs.job_status import JobStatus, place
from cli import lake
from cli.look.doctor.deployment import of_account
from cli.prove.report import NotCheckedError
from cli.prove.scene import Scene
from cli.run.demo.checks import by_pyiceberg, opened
from cli.run.jobs import run_deployed
from cli.verify.topic import Sources
from cli.verify.verification import verify
from lambdas.aws import read_if_there
from lambdas.job_control.hand_over import Control
from lambdas.job_control.jobs import CONTROL, Jobs

NO_GENERATION = "calve-prove"
"""No generation has this name: a run that reads it finishes its rounds and ends."""


def acknowledged(scene: Scene) -> str:
    """The deploy has waited for the job, and has its sentence about the tables."""
    if scene.stack:
        raise NotCheckedError("the emulated Glue acknowledges for the job")
    said = next(value for key, value in scene.outputs[f"{scene.name}-ingest"].items() if "Tables" in key)
    count = len(scene.job.tables)
    if not said.startswith(f"{count} of {count} "):
        raise CalveError(said)
    return said


def doctor(scene: Scene) -> str:
    """`calve doctor`, from here and in the jobs' network."""
    found = of_account(scene.deployment, scene.stack, remote=True)
    if bad := [f"{each.check}: {each.detail}" for each in found if each.state == "fail"]:
        raise CalveError("; ".join(bad))
    others = [f"{each.check} ({each.state}: {each.detail})" for each in found if each.state != "ok"]
    well = f"{len(found) - len(others)} checks are ok"
    return "; ".join([well, *others])


def caught_up(scene: Scene) -> str:
    """The job has read all records. In the emulator, whose Glue runs nothing, it runs here, as it is deployed."""
    began = time.monotonic()
    if scene.stack:
        run_deployed(scene.stack, scene.job_name, scene.console, drain=True, quick=True, memory="1g")
    topics = scene.cluster.topics({table.topic for table in scene.job.tables})
    catalog = lake.open_catalog(scene.job.lake)

    def read_all() -> bool:
        for table in scene.job.tables:
            made = lake.load(catalog, scene.job.table_name(table))
            commit = lake.latest_commit(made) if made else None
            if commit is None or commit[1].of(topics[table.topic].key) != topics[table.topic].end:
                return False
        return True

    scene.wait("waiting for the job", read_all)
    where = "on local Spark" if scene.stack else "on Glue"
    return f"the positions of {len(topics)} tables are their topics' ends, {time.monotonic() - began:.0f} s later, {where}"


def rows(scene: Scene) -> str:
    """Rows and dead letters by PyIceberg, exactly: by reason, none of them twice."""
    catalog, said = lake.open_catalog(scene.job.lake), []
    topics = scene.cluster.topics({table.topic for table in scene.job.tables})
    for table in scene.job.tables:
        name, fates = scene.job.table_name(table), scene.fates[table.name]
        spans = {p: (0, end) for p, end in topics[table.topic].end.items()}
        found = by_pyiceberg(opened(catalog, name), lake.load(catalog, name.dead_letters), spans)
        same(table.name, found.total, dict(found.dead_letters), scene)
        if found.rows != fates.applied or found.repeated:
            raise CalveError(
                f"{table.name}: {found.rows:,} rows of the topic, {found.repeated:,} of them twice"
            )
        said.append(_counts(table.name, scene))
    return "; ".join(said)


def athena(scene: Scene) -> str:
    """The same by Athena, in the deployment's workgroup."""
    if scene.stack:
        raise NotCheckedError("the emulated Athena invents its answers")
    said = []
    for table in scene.job.tables:
        name = scene.job.table_name(table)
        [[total]] = asked(scene, f'SELECT count(*) FROM "{name.table}"', name)  # noqa: S608 our own name
        letters: list[list[str]] = []
        if scene.fates[table.name].dead_lettered:
            query = f'SELECT reason, count(*) FROM "{name.dead_letters.table}" GROUP BY reason'  # noqa: S608 our own name
            letters = asked(scene, query, name)
        same(table.name, int(total), {reason: int(count) for reason, count in letters}, scene)
        said.append(_counts(table.name, scene))
    return "; ".join(said)


def asked(scene: Scene, query: str, name: TableName) -> list[list[str]]:
    """The rows of Athena's answer, without the header."""
    client, workgroup = scene.client("athena"), scene.output("lake", "Workgroup")
    run = client.start_query_execution(
        QueryString=query, WorkGroup=workgroup, QueryExecutionContext={"Database": name.database}
    )["QueryExecutionId"]

    def ended() -> dict[str, Any] | None:
        found = client.get_query_execution(QueryExecutionId=run)["QueryExecution"]["Status"]
        return dict(found) if found["State"] in ("SUCCEEDED", "FAILED", "CANCELLED") else None

    status = scene.wait("asking Athena", ended)
    if status["State"] != "SUCCEEDED":
        raise CalveError(f"Athena: {status['State']}, {status.get('StateChangeReason', 'no reason')}")
    answer = client.get_query_results(QueryExecutionId=run)["ResultSet"]["Rows"]
    return [[cell.get("VarCharValue", "") for cell in row["Data"]] for row in answer[1:]]


def same(table: str, total: int, dead_letters: dict[str, int], scene: Scene) -> None:
    """Raise CalveError if a reader's figures are not those of the produced records."""
    fates = scene.fates[table]
    if (total, dead_letters) != (fates.applied, fates.dead_lettered):
        expected = f"expected {fates.applied:,} rows and the dead letters {fates.dead_lettered}"
        raise CalveError(f"{table}: {total:,} rows and the dead letters {dead_letters}; {expected}")


def _counts(table: str, scene: Scene) -> str:
    fates = scene.fates[table]
    count, reasons = sum(fates.dead_lettered.values()), len(fates.dead_lettered)
    return f"{table}: {fates.applied:,} rows, {count} dead letters of {reasons} reasons"


def verified(scene: Scene) -> str:
    """`calve verify` of each table: topic and table read again, without Spark, and compared."""
    catalog, said = lake.open_catalog(scene.job.lake), []
    for table in scene.job.tables:
        sources = Sources.of(catalog, scene.job, table)
        found = verify(scene.job.table_name(table), sources, scene.console.progress())
        if found.fault or not found.ok:
            told = [f"{each.check}: {each.message} {each.where}".rstrip() for each in found.findings]
            raise CalveError(f"{table.name}: {found.fault or '; '.join(told)}")
        if not found.complete:
            raise NotCheckedError(f"{table.name}: calve verify could not prove all of it")
        said.append(f"{table.name}: {', '.join(each.name for each in found.checks)}")
    return "; ".join(said)


def watchdog(scene: Scene) -> str:
    """End the run as a deploy would, without one. The watchdog starts the next."""
    if scene.stack:
        raise NotCheckedError("the emulated Glue runs no job and says nothing of ends")
    jobs, s3 = Jobs(scene.client("glue")), scene.client("s3")
    definition = jobs.definition(scene.job_name)
    running = [each for each in jobs.runs(scene.job_name) if each.active]
    if definition is None or not running:
        raise CalveError(f"no run of {scene.job_name} is in progress")
    old, control = running[0].id, Control.parse(definition.arguments[CONTROL])
    control.write(s3, NO_GENERATION)
    try:
        scene.wait("ending the run", lambda: has_ended(scene, old))
    finally:
        control.write(s3, definition.generation)  # what the watchdog asks for
    began = time.monotonic()

    def followed() -> str | None:
        newest = jobs.runs(scene.job_name)[0]
        return newest.id if newest.id != old and newest.state == "RUNNING" else None

    new = scene.wait("waiting for the watchdog", followed)
    state = next(each.state for each in jobs.runs(scene.job_name) if each.id == old)
    return f"run {old[:12]} ended as {state}; {new[:12]} ran {time.monotonic() - began:.0f} s later"


def has_ended(scene: Scene, run: str) -> bool:
    """Whether the job says so, which is before Glue does, or Glue."""
    uri = place(scene.job.lake.warehouse, scene.name, scene.job.job)
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body = read_if_there(scene.client("s3"), bucket, key)
    said = JobStatus.from_dict(json.loads(body)) if body else JobStatus()
    found = {each.id: each for each in Jobs(scene.client("glue")).runs(scene.job_name)}
    newest = max(said.runs.values(), key=lambda each: each.began, default=None)
    return bool(newest and newest.ended) or not found[run].active
