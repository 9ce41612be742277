"""Checks between keys of calve.yaml.

They work on the values as written, so that their problems are found in the same run as those of single keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calve.engines import MODES, reasons
from calve.settings.masking import mask_step
from calve.settings.patterns import has_topics, pattern_problems
from calve.settings.problems import Invalid, KeyPath, Problem, choice, near_miss, one_of
from calve.settings.routing import route_problems

DEFAULT_JOB = "main"
SCHEDULE_NAME = 64
PUBLIC_PORTS = ("9194", "9196", "9198")
"""Where brokers of MSK listen for clients outside of their VPC."""


def job_names(values: Mapping[str, Any]) -> list[str]:
    """The configured jobs, or the one that stands in for none."""
    jobs = values.get("jobs")
    return list(jobs) if isinstance(jobs, dict) and jobs else [DEFAULT_JOB]


def relations(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem that lies between keys."""
    kafka = values.get("kafka")
    if isinstance(kafka, dict):
        yield from _cluster(kafka, values.get("network"))
    yield from _exports(values)
    tables = values.get("tables")
    if not isinstance(tables, dict):
        return
    yield from _clashes(tables)
    yield from pattern_problems(tables, values.get("defaults"))
    yield from _jobs(tables, job_names(values))
    yield from route_problems(tables)
    if not isinstance(values.get("masking"), dict):
        yield from _masks_without_keys(tables)
    yield from _quarantine_without_mask(tables, values.get("defaults"))
    yield from _retention_of_keys(tables)
    yield from _not_columnar(tables, values.get("defaults"))
    registry = values.get("registry")
    if isinstance(registry, dict) and registry.get("type") == "glue":
        yield from _of_glue(tables)


def _masks_without_keys(tables: Mapping[str, Any]) -> Iterator[Problem]:
    for name, table in tables.items():
        steps = table.get("steps") if isinstance(table, dict) else None
        for number, step in enumerate(steps if isinstance(steps, list) else ()):
            if isinstance(step, dict) and "mask" in step:
                path = ("tables", name, "steps", str(number), "mask")
                yield from (replace(each, path=path) for each in _without_keys(step["mask"]))


def _without_keys(raw: Any) -> Iterator[Problem]:
    reason = "needs keys, which hash what is personal and encrypt its dead letters"
    fix = "add `masking: {secret: aws:NAME}` to the file; see docs/masking.md"
    try:
        mask = mask_step(raw)
    except Invalid:
        yield Problem((), reason, fix)
        return
    if replace(mask, key="keep", headers="keep").masks:
        yield Problem((), reason, fix)
    elif mask.masks:
        keep = "write it as `{fields: {NAME: keep}, key: keep, headers: keep}`, which masks nothing"
        yield Problem((), "masks the record key, which needs keys", f"{keep}; or {fix}")


def _quarantine_without_mask(tables: Mapping[str, Any], defaults: Any) -> Iterator[Problem]:
    shared = defaults.get("quarantine_new_fields") if isinstance(defaults, dict) else None
    for name, table in tables.items():
        if not isinstance(table, dict):
            continue
        own, steps = table.get("quarantine_new_fields"), table.get("steps")
        listed = steps if isinstance(steps, list) else ()
        masks = any("mask" in each for each in listed if isinstance(each, dict))
        if (shared if own is None else own) is True and not masks:
            reason = "needs a step `mask` to name the fields that come in"
            fix = "add `mask: {fields: {}}` to its steps, or say `quarantine_new_fields: false` of this table"
            yield Problem(("tables", name, "quarantine_new_fields"), reason, fix)


def _retention_of_keys(tables: Mapping[str, Any]) -> Iterator[Problem]:
    """A row that stands for several records is as old as one of them alone."""
    for name, table in tables.items():
        maintenance = table.get("maintenance") if isinstance(table, dict) else None
        if not isinstance(maintenance, dict) or maintenance.get("rows") is None:
            continue
        for mode in MODES:
            if table.get(mode) is not None:
                reason = f"cannot be used with `{mode}`: only where every record is a row is it gone for good"
                yield Problem(("tables", name, "maintenance", "rows"), reason, f"remove it, or `{mode}`")


def _not_columnar(tables: Mapping[str, Any], defaults: Any) -> Iterator[Problem]:
    shared = defaults.get("engine") if isinstance(defaults, dict) else None
    for name, table in tables.items():
        if not isinstance(table, dict) or table.get("engine", shared) != "columnar":
            continue
        modes = [each for each in MODES if table.get(each) is not None]
        parts = [table[part] for part in ("value", "key") if isinstance(table.get(part), dict)]
        formats = [each["format"] for each in parts if isinstance(each.get("format"), str)]
        listed = table.get("steps")
        steps = [step for step in listed if isinstance(step, dict)] if isinstance(listed, list) else []
        for why in reasons(modes, formats, (kind for step in steps for kind in step)):
            yield Problem(
                ("tables", name, "engine"), f'"columnar" cannot be used: {why}', "use `auto` or `rows`"
            )


def _of_glue(tables: Mapping[str, Any]) -> Iterator[Problem]:
    """What the AWS Glue Schema Registry does not have."""
    for name, table in tables.items():
        if isinstance(table, dict) and table.get("emit") is not None:
            problem = "cannot be used with a registry of `type: glue`"
            yield Problem(
                ("tables", name, "emit"), problem, "use a Confluent-compatible registry, or remove it"
            )
        for part in ("value", "key"):
            section = table.get(part) if isinstance(table, dict) else None
            if not isinstance(section, dict) or section.get("format", "registry") != "registry":
                continue
            if section.get("prefix") == "confluent":
                problem = "has no use with a registry of `type: glue`"
                yield Problem(("tables", name, part, "prefix"), problem, "remove it")
            if part == "key" and section.get("subject") is None:
                problem = (
                    "is missing: in a Glue registry the topic's name is that of the schema of its values"
                )
                yield Problem(("tables", name, part, "subject"), problem, "add `subject: NAME`")


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


def _cluster(kafka: Mapping[str, Any], network: Any) -> Iterator[Problem]:
    msk, servers = kafka.get("msk"), kafka.get("bootstrap_servers")
    here = ("kafka", "bootstrap_servers")
    if not isinstance(msk, dict):
        if servers is None:
            yield Problem(here, "is missing", "add `bootstrap_servers:`")
        return
    create, arn = msk.get("create") is not None, msk.get("cluster") is not None
    if create == arn:
        reason = "names two clusters" if create else "names no cluster"
        yield Problem(("kafka", "msk"), reason, "use either `create: serverless` or `cluster: ARN`")
    elif create:
        yield from _made_cluster(kafka)
    else:
        if servers is None:
            fix = "add what `aws kafka get-bootstrap-brokers --cluster-arn ARN` says"
            yield Problem(here, "is missing: the ARN does not tell it", fix)
        yield from _existing_cluster(servers, network)


def _made_cluster(kafka: Mapping[str, Any]) -> Iterator[Problem]:
    if kafka.get("bootstrap_servers") is not None:
        reason = "has no use with `msk.create`: the cluster does not exist yet"
        yield Problem(("kafka", "bootstrap_servers"), reason, "remove it")
    auth = kafka.get("auth")
    kind = auth.get("type", "none") if isinstance(auth, dict) else None
    if isinstance(kind, str) and kind != "msk_iam":
        reason = f'"{kind}" cannot be used: MSK Serverless takes msk_iam only'
        yield Problem(("kafka", "auth", "type"), reason, "remove `auth`, which is then msk_iam")


def _existing_cluster(servers: Any, network: Any) -> Iterator[Problem]:
    public = isinstance(servers, str) and all(
        each.strip().endswith(tuple(f":{port}" for port in PUBLIC_PORTS)) for each in servers.split(",")
    )
    described = isinstance(network, dict) and network.get("vpc") is not None
    if not public and not described:
        reason = "is missing: these brokers answer only inside of their VPC"
        fix = "add `network:` with `vpc`, `availability_zones` and `subnets`"
        yield Problem(("network",), reason, fix)


def _exports(values: Mapping[str, Any]) -> Iterator[Problem]:
    exports, tables = values.get("exports"), values.get("tables")
    if not isinstance(exports, dict) or not exports:
        return
    for name, export in exports.items():
        length = len(f"{values.get('name')}-{name}")
        if length > SCHEDULE_NAME:
            reason = f"is too long: its schedule, NAME-EXPORT, would have {length} characters"
            yield Problem(("exports", name), reason, f"shorten it by {length - SCHEDULE_NAME}")
        table = export.get("table") if isinstance(export, dict) else None
        if isinstance(table, str) and isinstance(tables, dict):
            yield from _exported(("exports", name, "table"), table, tables)


def _exported(path: KeyPath, table: str, tables: Mapping[str, Any]) -> Iterator[Problem]:
    named = [key for key, each in tables.items() if not has_topics(each)]
    if table in named:
        return
    if len(named) < len(tables):
        reason = f'"{table}" is no table that is declared by its name'
        fix = near_miss(table, named) or "declare it, beside the entry with `topics`: `NAME: {topic: TOPIC}`"
    else:
        reason, fix = f'"{table}" is no table', choice(table, list(tables), "`tables` has them")
    yield Problem(path, reason, fix)
