"""Checks between keys of calve.yaml, as written: one run reports them together with invalid single values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from calve.config.engine_choice import MODES, reasons
from calve.config.job import part_name
from calve.config.topics import expression_problem, naming_problem
from calve.decoding.formats import FORMATS, Top, columns
from calve.names import FIELD_NAME
from calve.schema.documents import AS_TEXT, declared
from calve.schema.evolution import SchemaProblem
from calve.schema.inference import INFER
from calve.schema.wire import NO_ID, Schema
from calve.settings.document import at, mapping, schema_text
from calve.settings.entries.deploy import MOST_PARTS
from calve.settings.entries.steps import mask_step
from calve.settings.entries.tables import route_problems
from calve.settings.problems import Invalid, KeyPath, Problem, choice, near_miss, one_of
from calve.settings.resolving import StackDefaults

DEFAULT_JOB = "main"
SCHEDULE_NAME = 64
PUBLIC_PORTS = ("9194", "9196", "9198")
"""The ports of MSK brokers for clients outside their VPC."""
OF_ONE_TOPIC = {"route": "every table has topics of its own", "emit": "all its tables would write one topic"}
Entry = dict[str, Any]


def job_names(values: Mapping[str, Any]) -> list[str]:
    return list(mapping(values, "jobs")) or [DEFAULT_JOB]


def relations(values: Mapping[str, Any], folder: Path) -> Iterator[Problem]:
    """Every problem between keys. folder: of calve.yaml."""
    if isinstance(values.get("kafka"), dict):
        yield from _cluster(values["kafka"], values)
    for path in (("kafka", "auth", "ca_file"), ("registry", "ca_file")):
        file = at(values, *path)
        if isinstance(file, str) and file and not (folder / file).is_file():
            reason = f'"{folder / file}" does not exist'
            yield Problem(path, reason, "name a PEM file, relative to calve.yaml")
    yield from _home(values)
    tables = values.get("tables")
    yield from _exports(values, tables)
    if not isinstance(tables, dict):
        return
    yield from _jobs(tables, job_names(values))
    yield from _parts(mapping(values, "jobs"))
    yield from route_problems(tables)
    first: dict[str, str] = {}
    for name, table in tables.items():
        other = first.setdefault(name.lower(), name)
        if other != name:
            why = "Glue keeps names in lower case: both are one table"
            reason = f'differs from "{other}" only by case, and {why}'
            yield Problem(("tables", name), reason, "rename one of the two")
        if isinstance(table, dict):
            found = (*_of_entry(name, table, values), *_schemas(table, folder))
            yield from (replace(each, path=("tables", name, *each.path)) for each in found)


def _home(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems between what holds the tables and other sections."""
    home = at(values, "lake", "catalog", "type")
    made = at(values, "kafka", "msk", "create") is not None or isinstance(values.get("network"), dict)
    if home == "rest" and made and at(values, "network", "vpc") is None:
        reason = "cannot be reached from the VPC that the stack makes, which has no way out"
        yield Problem(("lake", "catalog", "uri"), reason, "name a VPC that reaches it: `network: {vpc: ...}`")
    if (
        home == "s3tables"
        and at(values, "lake", "database") is None
        and str(values.get("name")).startswith("aws")
    ):
        reason = "is missing: no namespace of S3 Tables begins with aws, and the default is the name"
        yield Problem(("lake", "database"), reason, "add `database:`")
    if home in ("rest", "s3tables") and values.get("publish") is not None:
        fix = "remove it: readers find the tables where they are"
        yield Problem(
            ("publish",), "publishes tables of the Glue Data Catalog, and `lake.catalog` holds yours", fix
        )


def _of_entry(name: str, table: Entry, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of one table; paths begin at its entry."""
    shared = mapping(values, "defaults") | {key: each for key, each in table.items() if each is not None}
    yield from _topics(name, table, shared.get("start"))
    masks = {number: step["mask"] for number, step in _steps(table).items() if "mask" in step}
    if not isinstance(values.get("masking"), dict):
        yield from _without_keys(masks)
    if shared.get("quarantine_new_fields") is True and not masks:
        reason = "needs a step `mask` to name the fields to add"
        fix = "add `mask: {fields: {}}` to its steps, or set `quarantine_new_fields: false` for this table"
        yield Problem(("quarantine_new_fields",), reason, fix)
    modes = [each for each in MODES if table.get(each) is not None]
    if at(table, "maintenance", "rows") is not None:
        for mode in modes:  # a row that stands for several records has no single age
            reason = f"cannot be used with `{mode}`: rows can only be deleted by age if every record is a row"
            yield Problem(("maintenance", "rows"), reason, f"remove it, or `{mode}`")
    if shared.get("engine") == "columnar":
        kinds = (kind for step in _steps(table).values() for kind in step)
        for why in reasons(kinds):
            yield Problem(("engine",), f'"columnar" cannot be used: {why}', "use `auto` or `rows`")
    if at(values, "registry", "type") == "glue":
        yield from _of_glue(table)


def _steps(table: Entry) -> dict[int, Entry]:
    """The steps that are mappings, by index."""
    listed = table.get("steps")
    steps = enumerate(listed if isinstance(listed, list) else ())
    return {number: step for number, step in steps if isinstance(step, dict)}


def _without_keys(masks: Mapping[int, Any]) -> Iterator[Problem]:
    """Problems of steps that mask, by index, in a file without `masking`."""
    reason = "needs keys, which hash personal data and encrypt its dead letters"
    fix = "add `masking: {secret: aws:NAME}` to the file; see docs/masking.md"
    for number, raw in masks.items():
        path = ("steps", str(number), "mask")
        try:
            mask = mask_step(raw)
        except Invalid:
            yield Problem(path, reason, fix)
            continue
        if replace(mask, key="keep", headers="keep").masks:
            yield Problem(path, reason, fix)
        elif mask.masks:
            keep = "write it as `{fields: {NAME: keep}, key: keep, headers: keep}`, which masks nothing"
            yield Problem(path, "masks the record key, which needs keys", f"{keep}; or {fix}")


def _of_glue(table: Entry) -> Iterator[Problem]:
    """Options that the AWS Glue Schema Registry does not support."""
    if table.get("emit") is not None:
        fix = "use a Confluent-compatible registry, or remove it"
        yield Problem(("emit",), "cannot be used with a registry of `type: glue`", fix)
    for part in ("value", "key"):
        section = table.get(part)
        if not isinstance(section, dict) or section.get("format", "registry") != "registry":
            continue
        if section.get("prefix") == "confluent":
            yield Problem((part, "prefix"), "has no use with a registry of `type: glue`", "remove it")
        if part == "key" and section.get("subject") is None:
            reason = "is missing: in a Glue registry the topic's name is that of the schema of its values"
            yield Problem((part, "subject"), reason, "add `subject: NAME`")


def _topics(name: str, table: Entry, start: Any) -> Iterator[Problem]:
    """Problems between an entry's key, its topics and its other options."""
    topics = table.get("topics")
    if topics is None:
        if table.get("topic") is None:
            yield Problem(("topic",), "is missing", "add `topic:`")
        if "{" in name and naming_problem(name) is None:
            reason = "names the tables of many topics, and the entry has no `topics`"
            yield Problem((), reason, "give it a plain name, or use `topics` instead of `topic`")
        return
    if isinstance(topics, str) and expression_problem(topics) is None:
        groups = re.compile(topics).groups
        if "{" not in name or (naming_problem(name) is None and naming_problem(name, groups)):
            fix = "`{topic}` stands for the topic, `{1}` for the first group"
            yield Problem((), naming_problem(name, groups) or "", fix)
    if at(table, "announce", "alert_on"):
        reason = "cannot be used with `topics`: the names of its tables are not known yet"
        yield Problem(("announce", "alert_on"), reason, "remove it")
    if table.get("topic") is not None:
        yield Problem(("topics",), "cannot be used together with `topic`", "remove one of the two")
    fix = "remove it, or declare the topic by name: `NAME: {topic: TOPIC}`"
    yield from (
        Problem((key,), f"cannot be used with `topics`: {why}", fix)
        for key, why in OF_ONE_TOPIC.items()
        if table.get(key) is not None
    )
    if isinstance(start, dict) and "offsets" in start:
        reason = "of offsets cannot be used with `topics`: each topic has its own offsets"
        yield Problem(("start",), reason, "use `earliest`, `latest` or `{timestamp: ...}`")


def has_topics(table: Any) -> bool:
    return at(table, "topics") is not None


def _jobs(tables: Mapping[str, Any], jobs: list[str]) -> Iterator[Problem]:
    named = {name: at(table, "job") for name, table in tables.items()}
    for table, job in named.items():
        path = ("tables", table, "job")
        if job is None and len(jobs) > 1:
            fix = "add " + one_of(f"`job: {each}`" for each in jobs)
            yield Problem(path, "is missing: there are several jobs", fix)
        elif isinstance(job, str) and job not in jobs:
            fix = near_miss(job, jobs) or f"use {one_of(jobs)}, or add it to `jobs`"
            yield Problem(path, f'"{job}" is not a job', fix)
    for job in jobs if len(jobs) > 1 else ():
        if job not in named.values():
            yield Problem(("jobs", job), "has no table", f"add `job: {job}` to a table, or remove the job")


def _parts(jobs: Mapping[str, Any]) -> Iterator[Problem]:
    """Jobs that are named like a part of another one."""
    for name, job in jobs.items():
        count = at(job, "count")
        parts = range(1, count + 1) if isinstance(count, int) and 1 < count <= MOST_PARTS else ()
        for each in parts:
            if part_name(name, each) in jobs:
                reason = f"is also the name of a part of {name}, which has `count: {count}`"
                yield Problem(("jobs", part_name(name, each)), reason, "rename one of the two")


def _cluster(kafka: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Problem]:
    msk, servers = kafka.get("msk"), kafka.get("bootstrap_servers")
    here = ("kafka", "bootstrap_servers")
    create, arn = at(msk, "create") is not None, at(msk, "cluster") is not None
    if not isinstance(msk, dict):
        if servers is None:
            yield Problem(here, "is missing", "add `bootstrap_servers:`")
    elif create == arn:
        reason = "names two clusters" if create else "names no cluster"
        yield Problem(("kafka", "msk"), reason, "use either `create: serverless` or `cluster: ARN`")
    elif create:
        if servers is not None:
            yield Problem(here, "has no use with `msk.create`: the cluster does not exist yet", "remove it")
        kind = kafka["auth"].get("type", "none") if isinstance(kafka.get("auth"), dict) else None
        if isinstance(kind, str) and kind != "msk_iam":
            reason = f'"{kind}" cannot be used: MSK Serverless takes msk_iam only'
            yield Problem(("kafka", "auth", "type"), reason, "remove `auth`, which is then msk_iam")
    else:
        if servers is None:
            fix = "add the output of `aws kafka get-bootstrap-brokers --cluster-arn ARN`"
            yield Problem(here, "is missing: the ARN does not contain it", fix)
        ports = tuple(f":{port}" for port in PUBLIC_PORTS)
        public = isinstance(servers, str) and all(each.strip().endswith(ports) for each in servers.split(","))
        if not public and at(values, "network", "vpc") is None:
            reason = "is missing: these brokers answer only inside their VPC"
            fix = "add `network:` with `vpc`, `availability_zones` and `subnets`"
            yield Problem(("network",), reason, fix)


def _exports(values: Mapping[str, Any], tables: Any) -> Iterator[Problem]:
    for name, export in mapping(values, "exports").items():
        length = len(f"{values.get('name')}-{name}")
        if length > SCHEDULE_NAME:
            reason = f"is too long: its schedule, NAME-EXPORT, would have {length} characters"
            yield Problem(("exports", name), reason, f"shorten it by {length - SCHEDULE_NAME}")
        table = at(export, "table")
        if not isinstance(table, str) or not isinstance(tables, dict):
            continue
        named = [key for key, each in tables.items() if not has_topics(each)]
        if table in named:
            continue
        reason, fix = f'"{table}" is not a table', choice(table, list(tables), "`tables` has them")
        if len(named) < len(tables):
            reason += " that is declared by its name"
            declare = "declare it, beside the entry with `topics`: `NAME: {topic: TOPIC}`"
            fix = near_miss(table, named) or declare
        yield Problem(("exports", name, "table"), reason, fix)


def _schemas(table: Entry, folder: Path) -> Iterator[Problem]:
    value, key = mapping(table, "value"), mapping(table, "key")
    taken = _name(key, "column") or "key" if isinstance(table.get("key"), dict) else None
    changes = (
        isinstance(table.get("change_data"), dict) or mapping(table, "history").get("of") == "change_data"
    )
    of_value = Top(
        rest=_name(value, "rest"),
        taken=taken,
        message=_text(value, "message"),
        changes=changes,
        event=_name(value, "cloudevents"),
    )
    of_key = Top(taken, message=_text(key, "message"))
    document = _text(value, "document")
    if document and document != AS_TEXT:
        of_text = replace(of_value, changes=False)
        if problem := _schema_problem(document, folder, of_text, declared):
            yield Problem(("value", "document"), *problem)
            return
    for part, section, top in (("value", value, of_value), ("key", key, of_key)):
        file, kind = _text(section, "schema"), str(section.get("format")).upper()
        if not file or kind == "REGISTRY" or (part == "value" and (kind, file) == ("JSON", INFER)):
            continue
        if part == "value" and document:
            text = document if document == AS_TEXT else schema_text(folder, document)
            top = replace(top, document=declared(text))
        if problem := _schema_problem(file, folder, top, partial(Schema, NO_ID, type=kind)):
            yield Problem((part, "schema"), *problem)


def _schema_problem(
    file: str, folder: Path, top: Top, schema_of: Callable[[str], Schema]
) -> tuple[str, str | None] | None:
    try:
        text = schema_text(folder, file)
    except (OSError, UnicodeDecodeError) as error:
        why = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or "cannot be read"
        return f'"{folder / file}" cannot be read: {why}', "name a schema file, relative to calve.yaml"
    try:
        schema = schema_of(text)
        if schema.type in FORMATS:
            columns(schema, top)
    except (SchemaProblem, ValueError) as problem:
        why = problem.message if isinstance(problem, SchemaProblem) else "this is no JSON"
        return f'"{file}" makes no table: {why}', None
    return None


def _name(section: Any, key: str) -> str | None:
    found = _text(section, key)
    return found if found and FIELD_NAME.fullmatch(found) else None


def _text(section: Any, key: str) -> str | None:
    found = at(section, key)
    return found if isinstance(found, str) else None


_KAFKA = "add `kafka: {bootstrap_servers: host:port}`"
_REGISTRY = "add `registry: {url: https://host}`"
_WRITTEN_BUCKET = (
    "name it in an overlay for --env that is never deployed, since a deploy takes a named bucket for an imported one: "
    "`lake: {bucket: NAME}`"
)
_LONGEST_REGION = len("ap-southeast-1")
_BUCKET_NAME = 63


def needed_by_a_command(values: Mapping[str, Any], stack: StackDefaults) -> Iterator[Problem]:
    """Sections that neither calve.yaml nor the stack has."""
    embedded, bucket = "or start the embedded stack: `calve up`", at(values, "lake", "bucket")
    missing: list[tuple[KeyPath, bool, str]] = [
        (("kafka",), values.get("kafka") is None and stack.kafka is None, _KAFKA),
        (("registry",), _lacks_registry(values, stack), _REGISTRY),
        (("lake", "bucket"), bucket is None and stack.warehouse is None, _WRITTEN_BUCKET),
    ]
    for path, absent, fix in missing:
        if absent:
            yield Problem(path, "is missing", f"{fix}, {embedded}")
    if at(values, "kafka", "msk", "create") is not None:
        yield Problem(
            ("kafka", "msk", "create"),
            "does not name the brokers, which only a deploy knows",
            "name them in an overlay: `kafka: {msk: null, bootstrap_servers: ..., auth: {type: msk_iam}}`",
        )


def needed_by_a_deploy(values: Mapping[str, Any], stack: StackDefaults) -> Iterator[Problem]:
    """Sections that a deploy cannot make, and values that only work on a laptop."""
    if values.get("kafka") is None and stack.kafka is None:
        yield Problem(("kafka",), "is missing", f"{_KAFKA}, or `kafka: {{msk: {{create: serverless}}}}`")
    if _lacks_registry(values, stack):
        yield Problem(("registry",), "is missing", _REGISTRY)
    secrets = (
        ("kafka", "auth", "secret"),
        ("kafka", "auth", "emit_secret"),
        ("registry", "secret"),
        ("registry", "client_certificate"),
        ("masking", "secret"),
        ("lake", "catalog", "secret"),
        ("publish", "iceberg_rest", "secret"),
        ("publish", "openlineage", "secret"),
        ("publish", "iceberg_rest", "bootstrap", "secret"),
    )
    for path in secrets:
        secret = at(values, *path)
        if isinstance(secret, str) and secret.startswith(("env:", "file:")):
            yield Problem(path, "cannot be read where the deployed job runs", "keep it in AWS: aws:SECRET_ID")
    # The stack's bucket is NAME-lake-ACCOUNT-REGION.
    name, region, bucket = values.get("name"), at(values, "lake", "region"), at(values, "lake", "bucket")
    rest = len("-lake-123456789012-") + (len(region) if isinstance(region, str) else _LONGEST_REGION)
    if isinstance(name, str) and bucket is None and len(name) + rest > _BUCKET_NAME:
        reason = f"is too long for the name of the bucket that the stack makes: {len(name)} characters"
        yield Problem(("name",), reason, f"use at most {_BUCKET_NAME - rest}, or name `lake.bucket`")


def _lacks_registry(values: Mapping[str, Any], stack: StackDefaults) -> bool:
    if values.get("registry") is not None or stack.registry is not None:
        return False
    tables = values.get("tables")
    parts = [
        mapping(table, part)
        for table in (tables.values() if isinstance(tables, dict) else [None])
        for part in ("value", "key")
        if part == "value" or isinstance(at(table, part), dict)
    ]
    return any(each.get("format") in (None, "registry") for each in parts)
