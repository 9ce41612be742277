"""`calve forget`: a request in the table, which the job answers between two rounds."""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import typer
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from calve.config.job import Job
from calve.config.job import Table as Settings
from calve.config.masking_keys import newest, read_keys
from calve.errors import ConfigError
from calve.names import FIELD_NAME
from calve.requests.forget import (
    RECORD_KEY,
    Condition,
    Entry,
    Request,
    bound_to,
    column_problem,
    masking_problem,
    seal_key,
)
from cli.act.requests import Kind, OpenedTable, YesOption
from cli.config import Common, TableArgument

FORGETTING = Kind(
    Request, "deletion of a person in", Entry.of, "nobody is forgotten in", slow=True, deletes=True
)
NONCE_BYTES = 12
UNREACHED = (
    "the topic, until its retention or a tombstone removes the records: what is read again is a row again",
    "the topics that the table's rows are emitted to",
    "files that people have downloaded, and mails",
    "copies that others have made: versions of objects in the bucket, replicas, backups, tables made of this one",
)

KeyOption = Annotated[
    list[str],
    typer.Option(
        "--key",
        "-k",
        help="The person's key, or COLUMN=VALUE. Several must all be met. Without a column: the table's one key column, "
        "or the record's key.",
    ),
]


def forget(
    table: TableArgument,
    *,
    key: KeyOption,
    yes: YesOption = False,
    given: Common,
) -> None:
    """Have the job delete a person from a table.

    Rows and dead letters go, from the table, its history and its stored exports. Nobody can bring them back. Ctrl-C ends the
    waiting, not the deletion.

    Example:
      calve forget users --key userid=User_17
    """
    console, now = given.console, datetime.now(UTC)
    opened = OpenedTable.open(table, given)
    name, settings = str(opened.name), opened.settings
    where = tuple(_condition(each, settings) for each in key)
    schema = json.loads(opened.main.schema().model_dump_json())
    for each in where:
        if problem := column_problem(schema, each.column) or masking_problem(settings.steps, {}, each.column):
            raise ConfigError(problem, fix="name another column: --key COLUMN=VALUE")
    if settings.aggregate is not None:
        raise ConfigError(
            f"the rows of {name} are totals: they do not show whose records they contain",
            fix="forget in the tables that hold the records, then rebuild this one",
        )
    opened.refuse_second(FORGETTING)
    columns = " and ".join(each.column for each in where)
    exports = "all" if settings.mode.replaces_rows else "those whose window holds one of the rows"
    for line in (
        f"The job will delete every row and dead letter where {columns} matches:",
        f"- rows of {name}, also those of earlier versions, and dead letters",
        "- the history of both tables: no query or rollback can go back before this deletion",
        f"- stored exports of the table: {exports}; `calve export run` makes a window again",
        "Do not compact the two tables with other tools until it is done: their new files would be deleted as left-overs.",
        "It cannot reach:",
        *(f"- {each}" for each in UNREACHED),
    ):
        console.say(line)
    request = Request(uuid.uuid4().hex, now.isoformat(timespec="seconds"), where)
    request = sealed(request, opened.job, settings)
    question = f"Forget this person in {name}? Nobody can undo it."
    entry = opened.ask(FORGETTING, request, question=question, look_at="what will go", yes=yes)
    figures = {
        "rows": f"{entry.rows:,}",
        "dead letters": f"{entry.letters:,}",
        "data files rewritten": f"{entry.files:,}",
        "files deleted": f"{entry.removed:,}",
        "exports deleted": f"{entry.exports:,}",
    }
    if entry.unopened:
        figures["not searched"] = f"{entry.unopened:,} dead letters, sealed by keys that the secret lacks"
    console.panel(f"forgotten in {name}", figures)


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
    """The request with its value encrypted where the table masks anything: no file of such a table may hold it in clear."""
    if not wanted.masks or job.masking is None:
        return request
    key = newest(read_keys(job.masking), int(time.time() * 10**6))
    cipher = AESGCM(seal_key(key, request.id))

    def seal(place: int, value: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + cipher.encrypt(nonce, value.encode(), bound_to(request.id, place))
        return base64.b64encode(data).decode()

    where = (Condition(each.column, seal(n, each.value)) for n, each in enumerate(request.where))
    return replace(request, where=tuple(where), sealed=key.id)
