"""The demo's first half: trades and users, from produced records to rows that five readers count."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pyiceberg.table import Table as Iceberg

from calve.config.job import Job
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import REASONS
from calve.settings import load
from cli import lake
from cli.conditions import Conditions
from cli.config import stack_defaults
from cli.console import Console
from cli.embedded import elsewhere
from cli.embedded.cdk import App
from cli.embedded.layout import CHECKOUT, Layout
from cli.embedded.stack import Stack
from cli.kafka import Cluster
from cli.look.status.overview import snapshot_line
from cli.look.tables import facts
from cli.run.datagen.plan import Plan, in_turn
from cli.run.datagen.produce import Target, produce
from cli.run.demo import checks
from cli.run.demo.sales import last_week
from cli.verify.findings import Verification

WEEK = last_week(datetime.now(UTC))
TRADES = Plan("stock_trades", 300_000, duplicates=0.01, malformed=in_turn(60), period=WEEK)
USERS = Plan("users", 10_000, dataset="users")
PLANS = (TRADES, USERS)
SAMPLE = 3
COLUMNS = ("symbol", "side", "quantity", "price")


def job_on(stack: Stack) -> Job:
    [job] = load(CHECKOUT / "calve.yaml", stack=stack_defaults(stack))
    return job


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan's table, its dead letters if any, and the offsets that this run produced."""

    table: Iceberg
    dead_letters: Iceberg | None
    spans: checks.Spans


class Trading:
    """One run of the calve.yaml that ships. `details` gets what a newcomer does not need at once."""

    def __init__(self, stack: Stack, details: Console) -> None:
        self._stack, self._details, self._job = stack, details, job_on(stack)
        self._catalog = lake.open_catalog(self._job.lake)
        self._file = Layout(stack.root).demo / "calve.yaml"
        self._spans: dict[str, checks.Spans] = {}
        self._outputs: dict[str, dict[str, str]] = {}

    def prepare(self) -> None:
        """Start the targets that tables are published to, and write the calve.yaml that names them."""
        self._others = elsewhere.up(self._stack)
        published = json.dumps(self._others.publish)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(f"{(CHECKOUT / 'calve.yaml').read_text()}\npublish: {published}\n")
        self._app.prepare(checks.QUIET)

    @property
    def _app(self) -> App:
        return App(self._stack, self._file, title="deploying trading")

    def deploy(self) -> None:
        self._outputs = self._app.deploy(self._details.progress())
        for name, each in self._outputs.items():
            self._details.event(name, **each)

    def produce(self, progress: Callable[[int], object]) -> None:
        names = {plan.topic for plan in PLANS}
        cluster = Cluster(self._job.kafka, self._job.lake.region)
        before, done = cluster.topics(names), 0
        if held := ", ".join(sorted(name for name, topic in before.items() if any(topic.end.values()))):
            self._details.say(f"{held}: there are records already. They stay; the counts are of this run.")
        target = Target(self._job.kafka, self._job.registry, self._job.lake.region)
        for plan in PLANS:
            produce(plan, target, lambda sent, done=done: progress(done + sent))  # type: ignore[misc]
            done += plan.count
        first = {name: topic.end for name, topic in before.items()}
        self._spans = {
            name: {p: (first.get(name, {}).get(p, 0), end) for p, end in topic.end.items()}
            for name, topic in cluster.topics(names).items()
        }

    def ingest(self) -> None:
        name = f"{self._job.name}-{self._job.job}"
        checks.ingested(self._stack, name, self._details, sum(plan.count for plan in PLANS))

    @cached_property
    def _kept(self) -> dict[str, Kept]:
        kept = {}
        for table in self._job.tables:
            name = self._job.table_name(table)
            dead_letters = lake.load(self._catalog, name.dead_letters)
            kept[table.topic] = Kept(
                checks.opened(self._catalog, name), dead_letters, self._spans[table.topic]
            )
        return kept

    def rows(self) -> list[dict[str, Any]]:
        """A few trades, with the place in Kafka that each comes from."""
        rows = []
        for row in self._kept[TRADES.topic].table.scan(limit=SAMPLE).to_arrow().to_pylist():
            origin = row[SYSTEM_COLUMN]
            rows.append(
                {name: row[name] for name in COLUMNS}
                | {name: origin[name] for name in ("partition", "offset")}
            )
        return rows

    def dead_letters(self) -> dict[str, int]:
        """Of all runs on this stack, by reason."""
        letters = self._kept[TRADES.topic].dead_letters
        return lake.count_by(letters, "reason") if letters else {}

    def show(self) -> None:
        """All tables; then snapshots and dead letters of one."""
        shown = ("table", "state", "rows", "files", "bytes", "dead_letters")
        [conditions], read = Conditions.of([self._job]), lake.Tables(self._catalog)
        tables = [facts(read, self._job.table_name(table), conditions)[1] for table in self._job.tables]
        self._details.table("tables", [{name: row[name] for name in shown} for row in tables])
        lines = [snapshot_line(each) for each in lake.ancestors(self._kept[TRADES.topic].table)]
        self._details.table("snapshot", lines)
        rows = [
            {"reason": reason, "records": n, "meaning": REASONS.get(reason)}
            for reason, n in self.dead_letters().items()
        ]
        self._details.table("dead letters", rows)

    def prove(self) -> tuple[list[dict[str, object]], list[str]]:
        """A line for each table by all readers, and a sentence for each difference from the produced records."""
        proved = checks.verified(self._catalog, self._job, self._details)
        counts = self._counts(proved)
        tables = [each.table for each in self._kept.values()]
        states = self._outputs[f"{self._job.name}-publish"]["PublishStatesTable"]
        counts += checks.count_published(self._stack, self._job, states, tables, self._others, self._details)
        self._details.table("count", [each.line(checks.READERS) for each in counts])
        lines = [self._line(plan, proved, counts) for plan in PLANS]
        return lines, [each.differs for each in counts if each.differs] + checks.unproved(proved)

    def _line(
        self, plan: Plan, proved: dict[str, Verification], counts: Sequence[checks.Count]
    ) -> dict[str, object]:
        return checks.proof(
            plan.topic,
            plan.count,
            plan.fates().applied,
            sum(plan.fates().dead_lettered.values()),
            proved[plan.topic],
            counts,
        )

    def _counts(self, proved: dict[str, Verification]) -> list[checks.Count]:
        """The produced records beside each reader's figures; total rows also by Iceberg's totals and by verify."""
        counts: list[checks.Count] = []
        for plan in PLANS:
            here = self._kept[plan.topic]
            found = {
                checks.PYICEBERG: checks.by_pyiceberg(here.table, here.dead_letters, here.spans),
                checks.DUCKDB: checks.by_duckdb(here.table, here.dead_letters, here.spans, self._job.lake),
            }
            contents = [each.figures for each in proved[plan.topic].checks if each.name == "contents"]
            verified_rows = int(contents[0]["rows"]) if contents else 0
            total = {"Iceberg": lake.rows(here.table), checks.VERIFY: verified_rows}
            counts += checks.counts_of(plan.topic, plan.fates(), found, total=total)
        return counts
