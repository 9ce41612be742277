"""Checks of calve.yaml: pydantic's errors as problems of single keys, and checks between keys.

The latter work on the values as written, so one run reports both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from calve.config.engine_choice import MODES, reasons
from calve.config.topics import expression_problem, naming_problem
from calve.settings.entries.routes import route_problems
from calve.settings.entries.steps import mask_step
from calve.settings.model import Configuration, section_at
from calve.settings.problems import Invalid, KeyPath, Problem, choice, near_miss, one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails


_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_FORMS = {"list_type": "write it as [a, b]", "dict_type": "write it as {name: value}"}


def configuration(values: Mapping[str, Any]) -> tuple[Configuration | None, list[Problem]]:
    """The validated configuration, or None and every problem of a single key."""
    try:
        return Configuration.model_validate(values), []
    except ValidationError as error:
        found = error.errors(include_url=False)
        return None, [problem for each in found for problem in _problems(each)]


def _problems(error: ErrorDetails) -> Iterator[Problem]:
    path: KeyPath = tuple(str(part) for part in error["loc"] if part != "[key]")
    raw, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            yield _unknown(path)
        case "missing":
            yield Problem(path, "is missing", f"add `{path[-1]}:`")
        case "literal_error":
            yield _not_allowed(path, raw, str(context["expected"]))
        case "value_error" if isinstance(invalid := context["error"], Invalid):
            for each in invalid.problems:
                yield Problem((*path, *each.path), each.reason, each.fix)
        case "too_short" | "string_too_short":
            fix = "name at least one" if error["type"] == "too_short" else "write a text, or remove the key"
            yield Problem(path, "is empty", fix)
        case "greater_than_equal" | "less_than_equal":
            bound, what = next(iter(context.items()))
            reason = f"{raw} is too {'small' if bound == 'ge' else 'large'}"
            yield Problem(path, reason, f"use {what:,} or {'more' if bound == 'ge' else 'less'}")
        case kind if kind in _KINDS:
            quote = isinstance(raw, int | float) and kind == "string_type"
            yield Problem(path, f"must be {_KINDS[kind]}", "put it in quotes" if quote else _FORMS.get(kind))
        case _:
            yield Problem(path, error["msg"])


def _unknown(path: KeyPath) -> Problem:
    section = section_at(path[:-1])
    known = list(section.keys()) if section else []
    fix = near_miss(path[-1], known) or (f"known here: {', '.join(known)}" if known else "remove it")
    return Problem(path, "is not a known key", fix)


def _not_allowed(path: KeyPath, raw: Any, expected: str) -> Problem:
    choices = re.findall(r"'([^']*)'", expected) or re.findall(r"\d+", expected)
    if not isinstance(raw, str | int | float):
        return Problem(path, f"must be {one_of(choices)}")
    guess = near_miss(str(raw), choices)
    return Problem(
        path,
        f'"{raw}" cannot be used',
        f"{guess} Use {one_of(choices)}" if guess else f"use {one_of(choices)}",
    )


DEFAULT_JOB = "main"
SCHEDULE_NAME = 64
PUBLIC_PORTS = ("9194", "9196", "9198")
"""The ports of MSK brokers for clients outside their VPC."""
OF_ONE_TOPIC = {
    "route": "every table has topics of its own",
    "emit": "all its tables would write one topic",
}
Entry = dict[str, Any]


def job_names(values: Mapping[str, Any]) -> list[str]:
    """The configured jobs, or the default one."""
    jobs = values.get("jobs")
    return list(jobs) if isinstance(jobs, dict) and jobs else [DEFAULT_JOB]


def relations(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem between keys."""
    kafka = values.get("kafka")
    if isinstance(kafka, dict):
        yield from _cluster(kafka, values.get("network"))
    yield from _exports(values)
    tables = values.get("tables")
    if not isinstance(tables, dict):
        return
    yield from _clashes(tables)
    yield from _jobs(tables, job_names(values))
    yield from route_problems(tables)
    entries = {name: table for name, table in tables.items() if isinstance(table, dict)}
    defaults = values.get("defaults")
    shared = defaults if isinstance(defaults, dict) else {}
    yield from _patterns(entries, shared.get("start"))
    if not isinstance(values.get("masking"), dict):
        yield from _masks_without_keys(entries)
    yield from _quarantine_without_mask(entries, shared.get("quarantine_new_fields"))
    yield from _retention_of_keys(entries)
    yield from _not_columnar(entries, shared.get("engine"))
    registry = values.get("registry")
    if isinstance(registry, dict) and registry.get("type") == "glue":
        yield from _of_glue(entries)


def _steps(table: Entry) -> dict[int, Entry]:
    """The steps that are mappings, by index."""
    listed = table.get("steps")
    steps = enumerate(listed if isinstance(listed, list) else ())
    return {number: step for number, step in steps if isinstance(step, dict)}


def _masks_without_keys(tables: Mapping[str, Entry]) -> Iterator[Problem]:
    for name, table in tables.items():
        for number, step in _steps(table).items():
            if "mask" in step:
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


def _quarantine_without_mask(tables: Mapping[str, Entry], shared: Any) -> Iterator[Problem]:
    for name, table in tables.items():
        own = table.get("quarantine_new_fields")
        masks = any("mask" in each for each in _steps(table).values())
        if (shared if own is None else own) is True and not masks:
            reason = "needs a step `mask` to name the fields that come in"
            fix = "add `mask: {fields: {}}` to its steps, or say `quarantine_new_fields: false` of this table"
            yield Problem(("tables", name, "quarantine_new_fields"), reason, fix)


def _retention_of_keys(tables: Mapping[str, Entry]) -> Iterator[Problem]:
    """A row that stands for several records has no single age."""
    for name, table in tables.items():
        maintenance = table.get("maintenance")
        if not isinstance(maintenance, dict) or maintenance.get("rows") is None:
            continue
        for mode in MODES:
            if table.get(mode) is not None:
                reason = f"cannot be used with `{mode}`: only where every record is a row is it gone for good"
                yield Problem(("tables", name, "maintenance", "rows"), reason, f"remove it, or `{mode}`")


def _not_columnar(tables: Mapping[str, Entry], shared: Any) -> Iterator[Problem]:
    for name, table in tables.items():
        if table.get("engine", shared) != "columnar":
            continue
        modes = [each for each in MODES if table.get(each) is not None]
        parts = [table[part] for part in ("value", "key") if isinstance(table.get(part), dict)]
        formats = [each["format"] for each in parts if isinstance(each.get("format"), str)]
        for why in reasons(modes, formats, (kind for step in _steps(table).values() for kind in step)):
            yield Problem(
                ("tables", name, "engine"), f'"columnar" cannot be used: {why}', "use `auto` or `rows`"
            )


def _of_glue(tables: Mapping[str, Entry]) -> Iterator[Problem]:
    """Options that the AWS Glue Schema Registry does not support."""
    for name, table in tables.items():
        if table.get("emit") is not None:
            problem = "cannot be used with a registry of `type: glue`"
            yield Problem(
                ("tables", name, "emit"), problem, "use a Confluent-compatible registry, or remove it"
            )
        for part in ("value", "key"):
            section = table.get(part)
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


def has_topics(table: Any) -> bool:
    """Whether an entry has `topics`."""
    return isinstance(table, dict) and table.get("topics") is not None


def _patterns(tables: Mapping[str, Entry], start: Any) -> Iterator[Problem]:
    """Problems between an entry's key, its topics and its other options."""
    for name, table in tables.items():
        yield from _of_pattern(name, table, start) if has_topics(table) else _of_table(name, table)


def _of_table(name: str, table: Entry) -> Iterator[Problem]:
    if table.get("topic") is None:
        yield Problem(("tables", name, "topic"), "is missing", "add `topic:`")
    if "{" in name and naming_problem(name) is None:
        reason = "names the tables of many topics, and the entry has no `topics`"
        yield Problem(
            ("tables", name), reason, "give it a plain name, or use `topics` in the place of `topic`"
        )


def _of_pattern(name: str, table: Entry, shared: Any) -> Iterator[Problem]:
    topics = table["topics"]
    if isinstance(topics, str) and expression_problem(topics) is None:
        groups = re.compile(topics).groups
        if "{" not in name or (naming_problem(name) is None and naming_problem(name, groups)):
            reason = naming_problem(name, groups) or ""
            yield Problem(
                ("tables", name), reason, "`{topic}` stands for the topic, `{1}` for the first group"
            )
    announce = table.get("announce")
    if isinstance(announce, dict) and announce.get("alert_on"):
        reason = "cannot be used with `topics`: its tables have names that nobody knows yet"
        yield Problem(("tables", name, "announce", "alert_on"), reason, "remove it")
    if table.get("topic") is not None:
        yield Problem(
            ("tables", name, "topics"), "cannot be used together with `topic`", "remove one of the two"
        )
    for key, why in OF_ONE_TOPIC.items():
        if table.get(key) is not None:
            fix = "remove it, or declare the topic by name: `NAME: {topic: TOPIC}`"
            yield Problem(("tables", name, key), f"cannot be used with `topics`: {why}", fix)
    start = table.get("start") if table.get("start") is not None else shared
    if isinstance(start, dict) and "offsets" in start:
        reason = "of offsets cannot be used with `topics`, each of which has its own"
        yield Problem(("tables", name, "start"), reason, "use `earliest`, `latest` or `{timestamp: ...}`")
