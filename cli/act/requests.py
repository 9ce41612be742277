"""Requests that the job answers between two rounds: a command leaves one in a table and waits for the answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar

import typer

from calve.errors import CalveError, ConfigError
from calve.requests.requests import WaitingRequest
from cli.config import load_jobs, table_named
from cli.console import Console, Output

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from calve.config.job import Table as Settings
    from calve.names import TableName

ASK_S = 1.0
COMMIT_ATTEMPTS = 5

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Ask no question.")]
Answer = TypeVar("Answer")


class Identified(Protocol):
    """A request with an id."""

    @property
    def id(self) -> str: ...


class Unanswered(CalveError):
    """No job answered in time."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[Answer]):
    """A kind of request. title: its name, before the name of the table. answered: finds the answer to a request id among the
    table's properties.
    """

    request: type[WaitingRequest]
    title: str
    answered: Callable[[Mapping[str, str], str], Answer | None]


def refuse_second(kind: Kind[Any], main: Table) -> None:
    """Refuse a request while another of this kind waits; one that cannot be parsed does not count.

    Raises:
        CalveError: another one waits.
    """
    try:
        waiting = kind.request.pending(main.properties)
    except ValueError:
        return
    if waiting is not None:
        raise CalveError(
            f"{kind.title} {_name(main)} waits already, since {waiting.at}",
            fix="start the job, which answers it with its next round: calve ingest; then ask again",
        )


def require_consent(console: Console, question: str, *, look_at: str, yes: bool) -> None:
    """Ask for consent unless `yes`. look_at: what a person should look at first.

    Raises:
        ConfigError: nobody can answer.
    """
    if yes:
        return
    if console.output is Output.json or not sys.stdin.isatty():
        raise ConfigError("nobody is there to be asked", fix=f"look at {look_at}, then add --yes")
    typer.confirm(question, abort=True, err=True)


def change(
    main: Table,
    values: Mapping[str, str],
    *,
    remove: Sequence[str] = (),
    check: Callable[[], None] = lambda: None,
) -> None:
    """Change the table's properties. A running job may commit at the same time: `check` then runs again.

    Raises:
        CalveError: the table changes too often; and whatever `check` raises.
    """
    from pyiceberg.exceptions import CommitFailedException

    from cli.lake import aws_errors

    name = _name(main)
    with aws_errors(f"table {name}"):
        for _ in range(COMMIT_ATTEMPTS):
            try:
                with main.transaction() as transaction:
                    transaction.set_properties(dict(values))
                    if gone := [each for each in remove if each in main.properties]:
                        transaction.remove_properties(*gone)
            except CommitFailedException:
                main.refresh()
                check()
            else:
                return
    raise CalveError(f"table {name} changes too often to take the request", fix="ask again")


def refresh(main: Table) -> None:
    """Read the table's newest metadata."""
    from cli.lake import aws_errors

    with aws_errors(f"table {_name(main)}"):
        main.refresh()


def wait(
    console: Console,
    main: Table,
    answer: Callable[[], Answer | None],
    *,
    request: Identified,
    title: str,
    patience_s: float,
    ingest: str,
    look: Callable[[Table], None] = refresh,
) -> Answer:
    """Wait for an answer. title: what is waited for. ingest: the table for `calve ingest` in the fix. look: reads the table
    again.

    Raises:
        Unanswered: no job answered in time; and the errors of `answer` and `look`.
    """
    from cli.lake import state_of

    until = time.monotonic() + patience_s
    try:
        with console.progress().task(title) as task:
            while (found := answer()) is None:
                task.update(note=f"waiting for the job; the table is {state_of(main).state}")
                if time.monotonic() > until:
                    raise Unanswered(
                        f"no job has answered within {patience_s:.0f} s; the request stays in the table",
                        fix=f"start the job, which answers it with its next round: calve ingest {ingest}",
                    )
                time.sleep(ASK_S)
                look(main)
    except KeyboardInterrupt:
        console.event("the request stays in the table", id=request.id)
        raise
    return found


def ask(
    console: Console,
    main: Table,
    kind: Kind[Answer],
    request: WaitingRequest,
    *,
    title: str,
    patience_s: float,
    ingest: str,
    look: Callable[[Table], None] = refresh,
) -> Answer:
    """Leave the request in the table's properties, and `wait` for its answer.

    Raises:
        CalveError: another request was faster or takes this one's place, or the table changes too often; and as `wait`.
    """

    def answer() -> Answer | None:
        found = kind.answered(main.properties, request.id)
        waiting = kind.request.pending(main.properties) if found is None else None
        if waiting is not None and waiting.id != request.id:
            raise CalveError(f"{kind.title} {_name(main)}: another request has taken the place of this one")
        return found

    change(main, {kind.request.NAME: request.to_json()}, check=lambda: refuse_second(kind, main))
    return wait(
        console, main, answer, request=request, title=title, patience_s=patience_s, ingest=ingest, look=look
    )


def _name(main: Table) -> str:
    return ".".join(main.name())


def open_both(table: str, config: Path, env: str | None) -> tuple[TableName, Settings, Table, Table | None]:
    """The table's full name and settings, the table, and its dead-letter table where there is one.

    Raises:
        CalveError: there is no such table.
    """
    from cli.dead_letters import open_with_dead_letters
    from cli.kafka import cluster_database
    from cli.lake import open_catalog

    job, wanted = table_named(load_jobs(config, env, tables=[table]), table)
    name = job.table_name(wanted, cluster_database(job))
    main, dead_letters = open_with_dead_letters(open_catalog(job.lake), name)
    return name, wanted, main, dead_letters
