"""`calve forget`: a request in the table, which the job answers between two rounds."""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calve.config.job import Job
from calve.config.job import Table as Settings
from calve.errors import CalveError, ConfigError, Retryable
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
from cli.act.requests import Kind, YesOption, ask, refresh, refuse_second, require_consent
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TableArgument, load_jobs, table_named
from cli.console import Console, Output, OutputOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table

PATIENCE_S = 600.0
"""Files are rewritten and deleted, which takes longer than a round."""
FORGETTING = Kind(Request, "a request to forget somebody in", Entry.of)
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
        show_default=False,
    ),
]


def forget(
    table: TableArgument,
    *,
    key: KeyOption,
    yes: YesOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Have the job delete a person from a table.

    Rows and dead letters go, from the table, its history and its stored exports. Nobody can bring them back. Ctrl-C ends the
    waiting, not the deletion.

    Example:
      calve forget users --key userid=User_17
    """
    console, now = Console(output), datetime.now(UTC)
    job, wanted, main = _opened(table, config, env)
    name = ".".join(main.name())
    where = tuple(_condition(each, wanted) for each in key)
    _require_possible(name, main, wanted, where)
    _say_what_goes(console, name, wanted, where)
    question = f"Forget this person in {name}? Nobody can undo it."
    require_consent(console, question, look_at="what will go", yes=yes)
    request = sealed(Request(uuid.uuid4().hex, now.isoformat(timespec="seconds"), where), job, wanted)
    entry = ask(
        console,
        main,
        FORGETTING,
        request,
        title=f"forgetting in {name}",
        patience_s=PATIENCE_S,
        ingest=table,
        look=_look,
    )
    console.document({"table": name, **asdict(entry)})
    if entry.problem:
        raise CalveError(
            f"nobody is forgotten in {name}: {entry.problem}", fix="cure that, then ask for it again"
        )
    console.panel(f"forgotten in {name}", _figures(entry))


def _opened(table: str, config: Path, env: str | None) -> tuple[Job, Settings, Table]:
    from cli.dead_letters import open_with_dead_letters
    from cli.kafka import cluster_database
    from cli.lake import open_catalog

    job, wanted = table_named(load_jobs(config, env, tables=[table]), table)
    main, _ = open_with_dead_letters(open_catalog(job.lake), job.table_name(wanted, cluster_database(job)))
    return job, wanted, main


def _condition(text: str, wanted: Settings) -> Condition:
    """`COLUMN=VALUE`, or only a value if one column identifies the table's rows."""
    column, equals, value = text.partition("=")
    if not equals or not all(FIELD_NAME.fullmatch(part) for part in column.split(".")):
        column, value = _key_column(wanted), text
    if not value:
        raise ConfigError("--key has no value", fix="write it as COLUMN=VALUE")
    return Condition(column, value)


def _key_column(wanted: Settings) -> str:
    own = wanted.mode.key
    if len(own) > 1:
        raise ConfigError(
            f"the key of table {wanted.name} has several columns", fix=f"name one: --key {own[0]}=VALUE"
        )
    return own[0] if own else RECORD_KEY


def _require_possible(name: str, main: Table, wanted: Settings, where: Sequence[Condition]) -> None:
    schema = json.loads(main.schema().model_dump_json())
    for each in where:
        problem = column_problem(schema, each.column) or masking_problem(wanted.steps, {}, each.column)
        if problem:
            raise ConfigError(problem, fix="name another column: --key COLUMN=VALUE")
    if wanted.aggregate is not None:
        raise ConfigError(
            f"the rows of {name} are totals, which do not say who is in them",
            fix="forget in the tables that hold the records, then make this one anew",
        )
    refuse_second(FORGETTING, main)


def _say_what_goes(console: Console, name: str, wanted: Settings, where: Sequence[Condition]) -> None:
    columns = " and ".join(each.column for each in where)
    exports = "all" if wanted.mode.replaces_rows else "those whose window holds one of the rows"
    console.say(f"The job will delete what is told by {columns}:")
    console.say(f"- rows of {name}, also those of earlier versions, and dead letters")
    console.say(
        "- the history of both tables: nobody can travel to a time before this any more, or roll back"
    )
    console.say(f"- stored exports of the table: {exports}; `calve export run` makes a window anew")
    console.say(
        "Nobody else may compact the two tables until it is done: their new files would be taken for left-overs."
    )
    console.say("It cannot reach:")
    for each in UNREACHED:
        console.say(f"- {each}")


def sealed(request: Request, job: Job, wanted: Settings) -> Request:
    """The request with its value encrypted where the table masks anything: no file of such a table may hold it in clear."""
    if not wanted.masks or job.masking is None:
        return request
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from calve.config.masking_keys import newest, read_keys

    key = newest(read_keys(job.masking), int(time.time() * 10**6))
    cipher = AESGCM(seal_key(key, request.id))

    def seal(place: int, value: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + cipher.encrypt(nonce, value.encode(), bound_to(request.id, place))
        return base64.b64encode(data).decode()

    where = (Condition(each.column, seal(n, each.value)) for n, each in enumerate(request.where))
    return replace(request, where=tuple(where), sealed=key.id)


def _look(main: Table) -> None:
    # The metadata that the catalog has just named may be deleted at this very moment.
    with suppress(Retryable):
        refresh(main)


def _figures(entry: Entry) -> dict[str, object]:
    found: dict[str, object] = {
        "rows": f"{entry.rows:,}",
        "dead letters": f"{entry.letters:,}",
        "data files written anew": f"{entry.files:,}",
        "files deleted": f"{entry.removed:,}",
        "exports deleted": f"{entry.exports:,}",
    }
    if entry.unopened:
        found["not looked into"] = f"{entry.unopened:,} dead letters, sealed by keys that the secret lacks"
    return found
