"""What `calve status` finds at one moment."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calve.config.topics import NotKept
from calve.errors import CalveError
from calve.names import TableName
from calve.outputs.job_status import FormerState
from cli.account import Account, outputs
from cli.config import load_jobs, load_target
from cli.lake import aws_errors
from cli.look.status.history import History
from cli.look.status.survey import Survey
from cli.look.status.table_status import TableStatus
from cli.look.status.troubles import Trouble, troubles, urgency
from lambdas.publish_states import PublishState, PublishStates

DEPLOY = "deploy it: calve plan, then npx cdk deploy --all"


def published(config: Path, env: str | None, only: Collection[str] = ()) -> list[PublishState]:
    """The states by table and target, of all tables or of those named; none where nothing is published.

    Raises:
        CalveError: what publishes is not deployed, or cannot be asked.
    """
    deployment, embedded = load_target(config, env)
    if deployment.publish is None:
        return []
    account = Account.of(embedded, deployment.region)
    name = outputs(account, f"{deployment.name}-publish", fix=DEPLOY)["PublishStatesTable"]
    with aws_errors(f"the table {name}"):
        found = list(PublishStates(name, account.client("dynamodb")).all())
    return sorted(
        (each for each in found if not only or each.table.rpartition(".")[2] in only),
        key=lambda each: (each.table, each.target),
    )


DEPLOY = "deploy it: calve plan, then npx cdk deploy --all"


@dataclass(frozen=True, slots=True)
class Overview:
    """Tables in the order of calve.yaml. problems: what could not be asked. history: of the table, where it is about one."""

    at: datetime
    tables: list[TableStatus]
    published: list[PublishState] = field(default_factory=list)
    not_kept: list[NotKept] = field(default_factory=list)
    problems: list[CalveError] = field(default_factory=list)
    history: History | None = None

    @property
    def troubles(self) -> list[Trouble]:
        """What is wrong, the most urgent first."""
        return troubles(self.tables, self.published, self.not_kept, self.at)

    @property
    def by_urgency(self) -> list[TableStatus]:
        """The tables, those that need somebody first."""
        return sorted(self.tables, key=lambda each: urgency(each, self.at))

    @property
    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "at": self.at.isoformat(timespec="seconds"),
            "tables": [asdict(each) for each in self.tables],
            "troubles": [asdict(each) for each in self.troubles],
            "published": [asdict(each) for each in self.published],
            "not_kept": [asdict(each) for each in self.not_kept],
            "problems": [{"problem": each.message, "fix": each.fix} for each in self.problems],
        } | ({"history": self.history.document} if self.history else {})


def look(config: Path, env: str | None, only: Sequence[str] = ()) -> Overview:
    """All tables, or those named; one that is named alone comes with its history.

    Raises:
        ConfigError: the configuration cannot be used.
        Retryable, Fatal: the catalog does not answer, or refuses.
    """
    jobs = load_jobs(config, env, tables=only)
    problems: list[CalveError] = []
    with ThreadPoolExecutor() as pool:
        elsewhere = pool.submit(published, config, env, only)
        surveys = list(pool.map(Survey.begin, jobs))
        found = [
            each for statuses in pool.map(lambda each: each.statuses(only), surveys) for each in statuses
        ]
        problems += {str(each.unreached): each.unreached for each in surveys if each.unreached}.values()
        try:
            states = elsewhere.result()
        except CalveError as error:
            states = []
            problems.append(error)
    return Overview(
        datetime.now(UTC),
        found,
        states,
        [] if only else [topic for each in surveys for topic in each.not_kept],
        problems,
        _history(surveys, found[0]) if len(only) == 1 else None,
    )


def _history(surveys: Sequence[Survey], status: TableStatus) -> History:
    from cli.look.status.history import History

    catalog = next(each.catalog for each in surveys if each.job.job == status.job)
    now = FormerState(status.state, status.since, status.code)
    return History.of(catalog, TableName(*status.table.split(".")), now)
