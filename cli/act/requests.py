"""Requests that the job answers between two rounds: a command leaves one in a table and waits for the answer."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar

import typer
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from calve.config.job import Job
from calve.config.job import Table as Settings
from calve.errors import CalveError, Retryable
from calve.names import TableName
from calve.requests import forget, redrive, requests
from calve.schema.columns import Json
from cli.conditions import Condition, Conditions
from cli.config import Common, load_jobs, table_named
from cli.console import Console
from cli.kafka import cluster_database
from cli.lake import aws_errors, load, open_catalog, state_of

ASK_S = 1.0
PATIENCE_S = 120.0
"""The job looks at a suspended table once a minute, at a running one at least as often as its freshness says."""
LONG_PATIENCE_S = 600.0
"""For requests that rewrite files, which takes longer than a round."""
COMMIT_ATTEMPTS = 5

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Ask no question.")]


Answer = TypeVar("Answer", redrive.Result, requests.Entry, forget.Entry)
Found = TypeVar("Found")


class Unanswered(CalveError):
    """No job answered in time."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[Answer]):
    """A kind of request.

    title: its name, before the name of the table. answered: finds the answer to a request id among the table's properties.
    refused: begins the error, before the table's name, if the job does nothing; fix: of that error. slow: it rewrites files.
    deletes: also metadata, so a file that the catalog has just named may be gone.
    """

    request: type[requests.WaitingRequest]
    title: str
    answered: Callable[[Mapping[str, str], str], Answer | None]
    refused: str
    fix: str = "fix that, then ask again"
    slow: bool = False
    deletes: bool = False

    def refusal(self, table: TableName, problem: str) -> CalveError:
        return CalveError(f"{self.refused} {table}: {problem}", fix=self.fix)


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A table that a command asks something of. dead_letters: None if no record was ever rejected."""

    console: Console
    job: Job
    settings: Settings
    name: TableName
    main: Table
    dead_letters: Table | None

    @classmethod
    def open(cls, table: str, given: Common) -> Self:
        job, settings = table_named(load_jobs(given.config, given.env, tables=[table]), table)
        name = job.table_name(settings, cluster_database(job))
        found = cls.found(job, settings, name, open_catalog(job.lake), given.console)
        if found is None:
            raise CalveError(f"the table {name} does not exist yet", fix=f"calve status {table} says why")
        return found

    @classmethod
    def found(
        cls, job: Job, settings: Settings, name: TableName, catalog: Catalog, console: Console
    ) -> Self | None:
        """None: the table does not exist yet."""
        main = load(catalog, name)
        if main is None:
            return None
        return cls(console, job, settings, name, main, load(catalog, name.dead_letters))

    @property
    def schema(self) -> Json:
        """The table's columns in Iceberg's JSON form."""
        return json.loads(self.main.schema().model_dump_json())

    def refuse_second(self, kind: Kind[Any]) -> None:
        """Refuse a request while another of this kind waits; one that cannot be parsed does not count."""
        with suppress(ValueError):
            if waiting := kind.request.pending(self.main.properties):
                raise CalveError(
                    f"a {kind.title} {self.name} waits already, since {waiting.at}",
                    fix="start the job, which answers it with its next round: calve ingest; then ask again",
                )

    def ask(
        self,
        kind: Kind[Answer],
        request: requests.WaitingRequest,
        *,
        question: str,
        look_at: str,
        yes: bool,
        more: Mapping[str, object] | None = None,
    ) -> Answer:
        """Leave the request in the table after a person's consent, wait for its answer and write it as the JSON document.

        look_at: what a person should look at before consent. more: of the document.
        """
        self.console.consent(question, yes=yes, fix=f"look at {look_at}, then add --yes")
        self.leave(kind, request)
        found = self.answer(kind, request)
        self.console.document({"table": str(self.name), **(more or {}), **asdict(found)})
        if found.problem:
            raise kind.refusal(self.name, found.problem)
        return found

    def leave(self, kind: Kind[Any], request: requests.WaitingRequest) -> None:
        """Leave a request in the table."""
        self.change({kind.request.NAME: request.to_json()}, check=lambda: self.refuse_second(kind))

    def answer(self, kind: Kind[Answer], request: requests.WaitingRequest) -> Answer:
        """Wait for the answer to a request. Raises Unanswered: no job answered in time."""
        title = f"{kind.title} {self.name}"

        def answer() -> Answer | None:
            found = kind.answered(self.main.properties, request.id)
            waiting = kind.request.pending(self.main.properties) if found is None else None
            if waiting is not None and waiting.id != request.id:
                raise CalveError(f"a {title}: another request has taken the place of this one")
            return found

        return self.wait(title, answer, id=request.id, slow=kind.slow, deletes=kind.deletes)

    def change(
        self,
        values: Mapping[str, str],
        *,
        remove: Sequence[str] = (),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Change the table's properties. A running job may commit at the same time: `check` then runs again."""
        with aws_errors(f"table {self.name}"):
            for _ in range(COMMIT_ATTEMPTS):
                try:
                    with self.main.transaction() as transaction:
                        transaction.set_properties(dict(values))
                        if gone := [each for each in remove if each in self.main.properties]:
                            transaction.remove_properties(*gone)
                except CommitFailedException:
                    self.main.refresh()
                    check()
                else:
                    return
        raise CalveError(f"table {self.name} changes too often to take the request", fix="ask again")

    def wait(
        self,
        title: str,
        answer: Callable[[], Found | None],
        *,
        id: str,
        slow: bool = False,
        deletes: bool = False,
    ) -> Found:
        """Wait for an answer, for two rounds at least. id: of the request. slow, deletes: as in `Kind`.

        Raises:
            Unanswered: no job answered in time; and the errors of `answer`.
        """
        patience_s = max(LONG_PATIENCE_S if slow else PATIENCE_S, 2 * self.settings.freshness_s)
        until = time.monotonic() + patience_s
        fix = f"start the job, which answers it with its next round: calve ingest {self.settings.name}"
        if answer() is None and self._condition().state == "ended":
            raise Unanswered("no job runs now; the request stays in the table", fix=fix)
        try:
            with self.console.progress().task(title) as task:
                while (found := answer()) is None:
                    task.update(note=f"waiting for the job; the table is {state_of(self.main).state}")
                    if time.monotonic() > until:
                        problem = f"no job has answered within {patience_s:.0f} s"
                        raise Unanswered(f"{problem}; the request stays in the table", fix=fix)
                    time.sleep(ASK_S)
                    with suppress(*([Retryable] if deletes else [])), aws_errors(f"table {self.name}"):
                        self.main.refresh()
        except KeyboardInterrupt:
            self.console.event("the request stays in the table", id=id)
            raise
        return found

    def _condition(self) -> Condition:
        [conditions] = Conditions.of([self.job])
        return conditions.of_table(self.settings.name, state_of(self.main))


def stamp(now: datetime) -> str:
    return now.isoformat(timespec="milliseconds")


def person() -> str:
    try:
        return getpass.getuser()
    except OSError:
        return "somebody"
