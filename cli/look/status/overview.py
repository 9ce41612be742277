"""What `calve status` finds at one moment, and the history of one table: its snapshots, states and requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calve.config.topics import NotKept
from calve.errors import CalveError
from calve.names import TableName
from calve.outputs.job_status import FormerState
from calve.requests.requests import Entry
from calve.table.position import Offsets, TopicKey
from calve.table.summary import (
    BACKFILL,
    FORGET,
    MAINTENANCE,
    REDRIVE,
    TOPIC,
    ends_of,
    has_position,
    is_round,
    round_of,
    starts_of,
)
from cli.account import Account, NotDeployed, outputs
from cli.config import load_jobs, load_target
from cli.console import ago
from cli.exports import Delivered, Exports
from cli.lake import Snapshot, Tables, ancestors, aws_errors, open_catalog, state_of
from cli.look.cost.measured import Daily, daily
from cli.look.cost.model import rates
from cli.look.health import TableStatus, Trouble, troubles
from cli.look.status.metadata import SchemaVersion, versions
from cli.look.status.survey import Survey
from lambdas.publish_states import PublishState, PublishStates

REQUESTED = {REDRIVE: "redrive", FORGET: "forget", BACKFILL: "backfill"}
DEPLOY = "deploy it: calve deploy"


@dataclass(frozen=True, slots=True)
class History:
    """Newest first. snapshots: main's ancestors that are kept. done: executed requests. cost: None if no commit recorded one."""

    snapshots: tuple[Snapshot, ...] = ()
    states: tuple[FormerState, ...] = ()
    done: tuple[Entry, ...] = ()
    schemas: tuple[SchemaVersion, ...] = ()
    cost: Daily | None = None

    @classmethod
    def of(cls, tables: Tables, name: TableName, now: FormerState) -> History:
        """The history of a table in the state `now`; empty if the table does not exist yet."""
        table = tables.read(name)
        if table is None:
            return cls()
        state = state_of(table)
        states = (FormerState(state.state, state.since, state.code), *state.before)
        if now.state != state.state:
            states = (now, *states)
        snapshots, done = tuple(ancestors(table)), tuple(reversed(Entry.all(table.properties)))
        cost = daily(snapshots, rates(), datetime.now(UTC))
        return cls(snapshots, states, done, versions(table.whole()), cost)

    def figures(self, name: str) -> list[tuple[datetime, float]]:
        """One metric of the rounds by commit time, the oldest first."""
        return [
            (each.at, float(each.metrics[name])) for each in reversed(self.snapshots) if name in each.metrics
        ]


def snapshot_line(snapshot: Snapshot) -> dict[str, object]:
    """One snapshot for people; without ledger figures if no round made it."""
    ledger = snapshot.ledger
    return {
        "snapshot": str(snapshot.id),
        "committed": ago(snapshot.at, datetime.now(UTC)),
        "operation": snapshot.operation,
        "offsets": ledger.span if ledger else None,
        "applied": ledger.applied if ledger else None,
        "dead_letters": ledger.dead_lettered if ledger else None,
        "skipped": (sum(ledger.skipped.values()) or None) if ledger else None,
        "filtered": (ledger.filtered or None) if ledger else None,
        "deduplicated": (ledger.deduplicated or None) if ledger else None,
        "gaps": ledger.gaps if ledger else None,
        "lost": ledger.lost if ledger else None,
        "deleted": (ledger.rows_deleted or None) if ledger else None,
        "rows": snapshot.total("records"),
    }


def snapshot_document(snapshot: Snapshot) -> dict[str, object]:
    ledger = snapshot.ledger
    return {
        "snapshot_id": snapshot.id,
        "parent_id": snapshot.parent,
        "committed_at": snapshot.at.isoformat(timespec="milliseconds"),
        "operation": snapshot.operation,
        "topic": snapshot.summary.get(TOPIC),
        "round": round_of(snapshot.summary),
        "from": _by_topic(starts_of(snapshot.summary)) if is_round(snapshot.summary) else None,
        "to": _by_topic(ends_of(snapshot.summary)) if has_position(snapshot.summary) else None,
        "ledger": asdict(ledger) if ledger else None,
        "metrics": snapshot.metrics,
    }


def _by_topic(offsets: Mapping[TopicKey, Offsets]) -> dict[str, Offsets]:
    return {str(topic): parts for topic, parts in offsets.items()}


def lines(history: History, limit: int) -> Iterator[dict[str, object]]:
    """The newest snapshots for people: kind, cost of the round, lateness."""
    for each in history.snapshots[:limit]:
        metrics = each.metrics
        costs = ("s3_puts", "s3_gets", "s3_lists", "catalog_calls")
        requests = [metrics[name] for name in costs if name in metrics]
        ledger = snapshot_line(each)
        del ledger["operation"]
        head = {"snapshot": ledger.pop("snapshot"), "committed": ledger.pop("committed"), "what": kind(each)}
        yield {
            **head,
            **ledger,
            "lag": metrics.get("lag_records"),
            "p95_s": metrics.get("freshness_p95_s"),
            "round_ms": metrics.get("round_ms"),
            "commit_ms": metrics.get("commit_ms"),
            "requests": sum(requests) if requests else None,
            "bytes": metrics.get("bytes_written", metrics.get("file_bytes")),
            "cpu_s": metrics.get("cpu_s"),
        }


def kind(snapshot: Snapshot) -> str:
    requested = next((word for name, word in REQUESTED.items() if name in snapshot.summary), None)
    if requested:
        return requested
    if MAINTENANCE in snapshot.summary:
        return snapshot.summary[MAINTENANCE].replace("_", " ")
    if snapshot.operation == "replace":
        return "merge"
    if not has_position(snapshot.summary):
        return "others"
    return "round" if snapshot.ledger else "made"


def published(config: Path, env: str | None, only: Collection[str] = ()) -> list[PublishState]:
    """The states by table and target, of all or the named tables; none if nothing is published.

    Raises:
        CalveError: the publishing stack is not deployed, or does not answer.
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


def exported(config: Path, env: str | None) -> list[Delivered]:
    """The newest file and the links of each export in calve.yaml; nothing is delivered before a deploy.

    Raises:
        CalveError: AWS does not answer, or refuses.
    """
    deployment, embedded = load_target(config, env)
    names = [each.name for each in deployment.exports]
    try:
        return Exports.of(config, deployment, embedded).delivered(names) if names else []
    except NotDeployed:
        return [Delivered(each) for each in names]


@dataclass(frozen=True, slots=True)
class Overview:
    """The deployment of a name. Tables are in the order of calve.yaml. problems: systems that did not answer.

    history: of a single requested table, whose exports are not looked at.
    """

    name: str
    at: datetime
    tables: list[TableStatus]
    published: list[PublishState] = field(default_factory=list)
    not_kept: list[NotKept] = field(default_factory=list)
    problems: list[CalveError] = field(default_factory=list)
    history: History | None = None
    exports: list[Delivered] = field(default_factory=list)

    @property
    def troubles(self) -> list[Trouble]:
        return troubles(self.tables, self.published, self.not_kept, self.at)

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "at": self.at.isoformat(timespec="seconds"),
            "tables": [asdict(each) for each in self.tables],
            "troubles": [asdict(each) for each in self.troubles],
            "published": [asdict(each) for each in self.published],
            "not_kept": [asdict(each) for each in self.not_kept],
            "exports": [asdict(each) for each in self.exports],
            "problems": [{"problem": each.message, "fix": each.fix} for each in self.problems],
        }
        if self.history:
            document["history"] = {
                "snapshots": [snapshot_document(each) for each in self.history.snapshots],
                "states": [asdict(each) for each in self.history.states],
                "done": [asdict(each) for each in self.history.done],
                "schemas": [asdict(each) for each in self.history.schemas],
                "cost": asdict(self.history.cost) if self.history.cost else None,
            }
        return document


def look(config: Path, env: str | None, only: Sequence[str] = ()) -> Overview:
    """All tables, or the named ones; a single named table comes with its history."""
    jobs = load_jobs(config, env, tables=only)
    problems: list[CalveError] = []
    with ThreadPoolExecutor() as pool:
        of_targets = pool.submit(published, config, env, only)
        of_exports = pool.submit(exported, config, env) if not only else None
        tables = Tables(open_catalog(jobs[0].lake))
        survey = Survey.begin(jobs, tables, only)
        found = survey.statuses()
        problems += [survey.unreached] if survey.unreached else []
        states: list[PublishState] = []
        exports: list[Delivered] = []
        with _noted(problems):
            states = of_targets.result()
        with _noted(problems):
            exports = of_exports.result() if of_exports else []
    not_kept = [] if only else list(survey.not_kept)
    history = None
    if len(only) == 1:
        [status] = found
        now = FormerState(status.state, status.since, status.code)
        history = History.of(tables, TableName(*status.table.split(".")), now)
    return Overview(jobs[0].name, datetime.now(UTC), found, states, not_kept, problems, history, exports)


@contextmanager
def _noted(problems: list[CalveError]) -> Iterator[None]:
    """A system that does not answer is a problem of the look, not its end."""
    try:
        yield
    except CalveError as error:
        problems.append(error)
