"""`calve plan --table --schema`: the effect of a schema on a table, before a producer registers it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calve.config.job import Job, PartName, Table
from calve.config.steps import ways_to
from calve.decoding.formats import columns
from calve.decoding.record_schemas import record_schemas_of
from calve.errors import ConfigError
from calve.registry.registry import open_registry
from calve.schema.columns import tags_of
from calve.schema.evolution import Change, data_columns
from calve.schema.lineage import Proposal
from calve.schema.wire import Schema
from cli.config import table_named
from cli.console import Branch
from cli.kafka import cluster_database
from cli.lake import load, open_catalog
from cli.project.plan.fields_to_review import looking_personal

TYPES = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
MARKS = {"add": "+", "widen": "~", "rename": "~", "comment": "~"}


@dataclass(frozen=True, slots=True)
class Line:
    """One effect on one path. `kind`: a kind of change, `unfilled` or `reject`."""

    kind: str
    path: str
    note: str
    rule: str | None = None


def read_candidate(file: Path) -> Schema:
    """A schema without an id.

    Raises:
        ConfigError: the file is missing, or its ending is unknown.
    """
    kind = TYPES.get(file.suffix)
    if kind is None:
        raise ConfigError(f"{file} has none of the endings {', '.join(TYPES)}")
    try:
        return Schema(0, file.read_text(encoding="utf-8"), kind)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None


def proposed(
    jobs: Sequence[Job], name: str, candidate: Schema, part: PartName = "value"
) -> tuple[Proposal, list[str]]:
    """The effect of the schema on the table as it is now, after all versions of its subject or file.

    For a table with steps or an aggregate: the effect on the columns of its records. Also a sentence for each added field that
    looks like personal data.

    Raises:
        ConfigError: this part of the table's records has no schema.
    """
    job, table = table_named(jobs, name)
    source = table.key if part == "key" else table.value
    if source is None or source.format in ("string", "bytes"):
        raise ConfigError(f"the {part}s of table {name} have no schema, as calve.yaml says")
    registry = open_registry(job.registry) if table.registered else None
    parts = record_schemas_of(table, registry)
    mine = parts.key if part == "key" and parts.key else parts.value
    made = table.aggregate or table.steps
    held = parts.first_columns(parts.versions()) if made else _columns(job, table)
    found = parts.proposal(part, held, mine.schemas.listed(), candidate)
    return found, [] if found.problem else _undecided(table, columns(candidate, mine.top), found.changes)


def _undecided(table: Table, found: Any, changes: Sequence[Change]) -> list[str]:
    added = {each.where.replace("[]", "").replace("{}", "") for each in changes if each.kind == "add"}
    return list(
        looking_personal(table, found, tags_of(found), lambda path: not added.isdisjoint(ways_to(path)))
    )


def lines(found: Proposal) -> list[Line]:
    if found.problem is not None:
        problem = found.problem
        return [Line("reject", problem.path or "the schema", problem.why, problem.rule)]
    return [
        *(Line(each.kind, each.where, _note(each)) for each in found.changes),
        *(Line("unfilled", path, "stays, and this version does not fill it") for path in found.unfilled),
    ]


def tree(name: str, found: Sequence[Line], undecided: Sequence[str] = ()) -> Branch:
    below = [
        Branch(each.path, MARKS.get(each.kind, "-"), f"{each.note} ({each.rule})" if each.rule else each.note)
        for each in found
    ]
    below += [Branch("", "?", each) for each in undecided]
    return Branch(name, below=below or [Branch("nothing changes", "=")])


def _note(change: Change) -> str:
    shown = change.type if isinstance(change.type, str) else change.type["type"]
    match change.kind:
        case "rename":
            return f"rename of {change.path}"
        case "comment":
            return f'comment "{change.doc}"'
        case "add":
            return f"add {shown}"
    return f"widen to {shown}"


def _columns(job: Job, table: Table) -> Any:
    found = load(open_catalog(job.lake), job.table_name(table, cluster_database(job)))
    return None if found is None else data_columns(json.loads(found.schema().model_dump_json()))
