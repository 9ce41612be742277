"""`calve forget`: a request in each table, which the job answers between two rounds."""

from __future__ import annotations

import base64
import os
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from calve.config.job import Job
from calve.config.job import Table as Settings
from calve.config.masking_keys import newest, read_keys
from calve.errors import CalveError, ConfigError
from calve.names import FIELD_NAME, RECORD_KEY
from calve.requests.forget import (
    UNPROVABLE_IN_S3_TABLES,
    Condition,
    Entry,
    Request,
    bound_to,
    column_problem,
    masking_problem,
    seal_key,
)
from cli.act.requests import Kind, OpenedTable, YesOption
from cli.config import Common, load_jobs, surveyed, with_tables
from cli.console import Console
from cli.kafka import cluster_database
from cli.lake import Tables, open_catalog

FORGETTING = Kind(
    Request, "deletion of a person in", Entry.of, "nobody is forgotten in", slow=True, deletes=True
)
NONCE_BYTES = 12
MOST_PERSONS = 1_000
"""A request is a property of the table, and each commit writes all of these."""
UNREACHED = (
    "the topic, until its retention or a tombstone removes the records: what is read again is a row again",
    "the topics that the table's rows are emitted to",
    "files that people have downloaded, and mails",
    "copies that others have made: versions of objects in the bucket, replicas, backups, tables made of this one",
)

TableOption = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE",
        help="The table's name in calve.yaml; with `--person` all tables that have the column.",
    ),
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        "-k",
        help="The person's key, or COLUMN=VALUE. Several must all be met. Without a column: the table's one key column, "
        "or the record's key.",
    ),
]
PersonOption = Annotated[
    str | None,
    typer.Option(
        "--person", metavar="COLUMN", help="The column that says who a row is about; with `--from-file`."
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--from-file",
        metavar="FILE",
        help=f"The persons, a value a line, at most {MOST_PERSONS:,}; `-`: the standard input. No value is an argument.",
    ),
]


def forget(
    table: TableOption = None,
    *,
    key: KeyOption = None,
    person: PersonOption = None,
    from_file: FileOption = None,
    yes: YesOption = False,
    given: Common,
) -> None:
    """Have the job delete persons from a table, or from all tables.

    Rows and dead letters go, from the tables, their history and their stored exports. Nobody can bring them back. Ctrl-C ends the
    waiting, not the deletion.

    Example:
      calve forget users --key userid=User_17
      calve forget --person email --from-file leavers.txt
    """
    console, now = given.console, datetime.now(UTC)
    if bool(key) == bool(person) or bool(person) != bool(from_file):
        fix = "write --key COLUMN=VALUE, or --person COLUMN --from-file FILE"
        raise ConfigError("the command needs to know whom to forget", fix=fix)
    if person and from_file:
        where: tuple[Condition, ...] = (_listed(person, from_file),)
        tables = [_able(OpenedTable.open(table, given), where)] if table else _having(where, given)
    elif table:
        opened = OpenedTable.open(table, given)
        where = tuple(_condition(each, opened.settings) for each in key or ())
        tables = [_able(opened, where)]
    else:
        raise ConfigError("--key needs a table", fix="name it: calve forget TABLE --key COLUMN=VALUE")
    for each in tables:
        each.refuse_second(FORGETTING)
    _say(console, tables, where)
    persons, names = len(where[0].values), ", ".join(str(each.name) for each in tables)
    whom = "this person" if persons == 1 else f"these {persons:,} persons"
    question = f"Forget {whom} in {names}? Nobody can undo it."
    asked = now.isoformat(timespec="seconds")
    requests = [sealed(Request(uuid.uuid4().hex, asked, where), each.job, each.settings) for each in tables]
    console.consent(question, yes=yes, fix="look at what will go, then add --yes")
    for each, request in zip(tables, requests, strict=True):
        each.leave(FORGETTING, request)
    _answer(console, tables, requests)


def _answer(console: Console, tables: Sequence[OpenedTable], requests: Sequence[Request]) -> None:
    """Wait for each table's answer. A table without one does not keep the others' from being shown."""
    found, problems = [], []
    for each, request in zip(tables, requests, strict=True):
        try:
            entry = each.answer(FORGETTING, request)
        except CalveError as problem:
            problems.append(problem)
            continue
        found.append({"table": str(each.name), **asdict(entry)})
        figures = {"table": str(each.name)} if len(tables) > 1 else {}
        figures |= {
            "rows": f"{entry.rows:,}",
            "dead letters": f"{entry.letters:,}",
            "data files rewritten": f"{entry.files:,}",
            "files deleted": f"{entry.removed:,}",
            "exports deleted": f"{entry.exports:,}",
        }
        if entry.unopened:
            figures["not searched"] = f"{entry.unopened:,} dead letters, sealed by keys that the secret lacks"
        if not entry.problem:
            console.panel(f"forgotten in {each.name}", figures)
        else:
            problems.append(FORGETTING.refusal(each.name, entry.problem))
    if len(tables) > 1:
        console.document({"tables": found})
    elif found:
        console.document(found[0])
    for other in problems[1:]:
        console.say(other.message)
    if problems:
        raise problems[0]


def _listed(column: str, file: Path) -> Condition:
    """The persons of a file, each once."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise ConfigError(f"{file} cannot be read: {why}", fix="name a file with a value a line") from None
    values = [*dict.fromkeys(line.strip() for line in text.splitlines() if line.strip())]
    if not values:
        raise ConfigError(f"{file} names no person", fix="write a value a line")
    if len(values) > MOST_PERSONS:
        reason = f"{file} names {len(values):,} persons, and a request takes {MOST_PERSONS:,}"
        raise ConfigError(reason, fix="split the file, and ask once for each part")
    return Condition(column, values[0], tuple(values[1:]))


def _having(where: Sequence[Condition], given: Common) -> list[OpenedTable]:
    """All tables that can tell these persons. The others are named, unless they lack the column."""
    jobs = load_jobs(given.config, given.env)
    database = cluster_database(jobs[0])
    catalog = open_catalog(jobs[0].lake)
    found = surveyed(jobs, Tables(catalog), database or jobs[0].lake.database, ())
    tables = []
    for job in (with_tables(each, found) for each in jobs):
        for settings in job.tables:
            opened = OpenedTable.found(
                job, settings, job.table_name(settings, database), catalog, given.console
            )
            if opened is None or all(column_problem(opened.schema, each.column) for each in where):
                continue
            if problem := _problem(opened, where):
                given.console.say(f"left out: {problem.message}")
            else:
                tables.append(opened)
    if not tables:
        raise ConfigError(
            f"no table has a column {where[0].column} that tells persons", fix="name another one"
        )
    return tables


def _able(opened: OpenedTable, where: Sequence[Condition]) -> OpenedTable:
    """The same table. Raises ConfigError: these persons cannot be forgotten in it."""
    if problem := _problem(opened, where):
        raise problem
    return opened


def _problem(opened: OpenedTable, where: Sequence[Condition]) -> ConfigError | None:
    """Why these persons cannot be forgotten in a table."""
    settings = opened.settings
    if opened.job.lake.service == "s3tables":
        return ConfigError(f"{opened.name}: {UNPROVABLE_IN_S3_TABLES}", fix="delete the rows by SQL")
    for each in where:
        found = column_problem(opened.schema, each.column) or masking_problem(settings.steps, {}, each.column)
        if found:
            return ConfigError(f"{opened.name}: {found}", fix="name another column")
    if settings.aggregate is not None:
        return ConfigError(
            f"the rows of {opened.name} are totals: they do not show whose records they contain",
            fix="forget in the tables that hold the records, then rebuild this one",
        )
    return None


def _say(console: Console, tables: Sequence[OpenedTable], where: Sequence[Condition]) -> None:
    columns = " and ".join(each.column for each in where)
    console.say(f"The job will delete every row and dead letter where {columns} matches:")
    for each in tables:
        exports = "all" if each.settings.mode.replaces_rows else "those whose window holds one of the rows"
        console.say(f"- rows of {each.name}, also those of earlier versions, and dead letters")
        console.say(f"- stored exports of {each.name}: {exports}; `calve export run` makes a window again")
    for line in (
        "- the history of these tables and of their dead letters: no query or rollback can go back before this deletion",
        "Do not compact these tables with other tools until it is done: their new files would be deleted as left-overs.",
        "It cannot reach:",
        *(f"- {each}" for each in UNREACHED),
    ):
        console.say(line)


def _condition(text: str, wanted: Settings) -> Condition:
    """`COLUMN=VALUE`, or only a value if one column identifies the table's rows."""
    column, equals, value = text.partition("=")
    if not equals or not all(FIELD_NAME.fullmatch(part) for part in column.split(".")):
        own = wanted.mode.key
        if len(own) > 1:
            reason = f"the key of table {wanted.name} has several columns"
            raise ConfigError(reason, fix=f"name one: --key {own[0]}=VALUE")
        column, value = own[0] if own else RECORD_KEY, text
    if not value:
        raise ConfigError("--key has no value", fix="write it as COLUMN=VALUE")
    return Condition(column, value)


def sealed(request: Request, job: Job, wanted: Settings) -> Request:
    """The request with its values encrypted where the table masks anything: no file of such a table may hold them in clear."""
    if not wanted.masks or job.masking is None:
        return request
    key = newest(read_keys(job.masking), int(time.time() * 10**6))
    cipher = AESGCM(seal_key(key, request.id))

    def seal(place: int, value: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + cipher.encrypt(nonce, value.encode(), bound_to(request.id, place))
        return base64.b64encode(data).decode()

    return replace(request.with_values(seal), sealed=key.id)
